spill_test(probe_test LABEL unit
  SOURCES probe_test.c
  DEPS planner io kernels util
  LIBS PkgConfig::CMOCKA PkgConfig::JANSSON)
