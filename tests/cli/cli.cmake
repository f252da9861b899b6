# Each program runs the built spill and looks at what it says.
foreach(name commands run jobs)
  spill_test(test_${name} LABEL cli
    SOURCES ${CMAKE_SOURCE_DIR}/tests/cli/test_${name}.c ${CMAKE_SOURCE_DIR}/tests/cli/program.c
    LIBS PkgConfig::CMOCKA PkgConfig::JANSSON TIMEOUT 900)
  set_tests_properties(test_${name} PROPERTIES ENVIRONMENT "SPILL=$<TARGET_FILE:spill>")
  add_dependencies(test_${name} spill)
endforeach()
