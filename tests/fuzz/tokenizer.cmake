spill_fuzz(fuzz_tokenizer SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_tokenizer.c DEPS tokenizer
  CORPUS ${CMAKE_CURRENT_SOURCE_DIR}/corpus/tokenizer)
