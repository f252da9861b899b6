spill_test(test_chat LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/chat_test.c DEPS chat LIBS PkgConfig::CMOCKA)
spill_test(test_chat_answer LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/chat_answer_test.c DEPS chat LIBS PkgConfig::CMOCKA)
