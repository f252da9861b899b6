spill_test(check_families LABEL golden
  SOURCES check_families.c ${CMAKE_SOURCE_DIR}/tests/invariants/rig.c
  DEPS engine planner model kernels util
  LIBS PkgConfig::JANSSON m)
