spill_test(test_chat LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/chat_test.c DEPS chat LIBS PkgConfig::CMOCKA)
