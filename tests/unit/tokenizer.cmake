spill_test(tokenizer_test LABEL unit SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tokenizer_test.c DEPS tokenizer LIBS PkgConfig::CMOCKA)
