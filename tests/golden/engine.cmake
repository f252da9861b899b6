spill_test(check_families LABEL golden
  SOURCES check_families.c ${CMAKE_SOURCE_DIR}/tests/invariants/rig.c
  DEPS engine planner model kernels util
  LIBS PkgConfig::JANSSON m)
# The real model, when it has been fetched (tools/fetch_smollm2.sh): a minute, so it is apart.
add_test(NAME check_smollm2 COMMAND check_families smollm2-bf16 smollm2-q4_1 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(check_smollm2 PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 900)
