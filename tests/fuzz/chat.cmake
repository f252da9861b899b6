spill_fuzz(fuzz_template SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_template.c DEPS chat
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/template)
spill_fuzz(fuzz_answer SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_answer.c DEPS chat
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/answer)
