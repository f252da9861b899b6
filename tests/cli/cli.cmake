# Each program runs the built spill and looks at what it says.
foreach(name commands run jobs tools prefix)
  spill_test(test_${name} LABEL cli
    SOURCES ${CMAKE_SOURCE_DIR}/tests/cli/test_${name}.c ${CMAKE_SOURCE_DIR}/tests/cli/program.c
    LIBS PkgConfig::CMOCKA PkgConfig::JANSSON TIMEOUT 900)
  set_tests_properties(test_${name} PROPERTIES ENVIRONMENT "SPILL=$<TARGET_FILE:spill>")
  add_dependencies(test_${name} spill)
endforeach()
# Bugs that others reported, docs/cases.md.
foreach(name cases cases_answers)
  spill_test(test_${name} LABEL cli
    SOURCES ${CMAKE_SOURCE_DIR}/tests/cli/test_${name}.c ${CMAKE_SOURCE_DIR}/tests/cli/cases.c
      ${CMAKE_SOURCE_DIR}/tests/cli/program.c
    LIBS PkgConfig::CMOCKA PkgConfig::JANSSON TIMEOUT 300)
  set_tests_properties(test_${name} PROPERTIES ENVIRONMENT "SPILL=$<TARGET_FILE:spill>")
  add_dependencies(test_${name} spill)
endforeach()
if(SPILL_SANITIZE)
  target_compile_definitions(test_cases PRIVATE SP_SANITIZED)
  target_compile_definitions(test_run PRIVATE SP_SANITIZED)
endif()

# Kills and drives that fail; a library of faults is preloaded, a sanitizer's runtime would want to be first.
add_executable(check_failures ${CMAKE_SOURCE_DIR}/tests/cli/check_failures.c ${CMAKE_SOURCE_DIR}/tests/cli/program.c)
target_link_libraries(check_failures PRIVATE spill_flags PkgConfig::JANSSON)
add_test(NAME check_failures COMMAND check_failures WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(check_failures PROPERTIES LABELS cli TIMEOUT 600)
add_dependencies(check_failures spill)
if(SPILL_SANITIZE)
  set_tests_properties(check_failures PROPERTIES ENVIRONMENT "SPILL=$<TARGET_FILE:spill>")
else()
  add_library(spill_write_faults MODULE ${CMAKE_SOURCE_DIR}/tests/cli/write_faults.c)
  target_link_libraries(spill_write_faults PRIVATE spill_flags)
  add_dependencies(check_failures spill_write_faults)
  set_tests_properties(check_failures PROPERTIES
    ENVIRONMENT "SPILL=$<TARGET_FILE:spill>;SPILL_WRITE_FAULTS=$<TARGET_FILE:spill_write_faults>")
endif()
