spill_test(formats_test LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/formats_test.c
  DEPS kernels util LIBS PkgConfig::CMOCKA m)
