# A library of faults is preloaded into spill; a sanitizer's runtime would want to be first.
if(NOT SPILL_SANITIZE AND LIBURING_FOUND)
  add_library(spill_faults MODULE ${CMAKE_SOURCE_DIR}/tests/cli/faults.c)
  target_link_libraries(spill_faults PRIVATE spill_flags PkgConfig::LIBURING)
  spill_test(test_stream LABEL cli
    SOURCES ${CMAKE_SOURCE_DIR}/tests/cli/test_stream.c ${CMAKE_SOURCE_DIR}/tests/cli/program.c
    LIBS PkgConfig::CMOCKA PkgConfig::JANSSON TIMEOUT 600)
  set_tests_properties(test_stream PROPERTIES
    ENVIRONMENT "SPILL=$<TARGET_FILE:spill>;SPILL_FAULTS=$<TARGET_FILE:spill_faults>")
  add_dependencies(test_stream spill spill_faults)
endif()

# Sanitizers take memory of their own.
if(NOT SPILL_SANITIZE)
  spill_test(test_memory LABEL slow
    SOURCES ${CMAKE_SOURCE_DIR}/tests/cli/test_memory.c ${CMAKE_SOURCE_DIR}/tests/cli/program.c
    LIBS PkgConfig::CMOCKA PkgConfig::JANSSON TIMEOUT 600)
  set_tests_properties(test_memory PROPERTIES ENVIRONMENT
    "SPILL=$<TARGET_FILE:spill>;SPILL_MAKE_MODEL=${CMAKE_BINARY_DIR}/bench/spill_make_model")
  add_dependencies(test_memory spill)
endif()
