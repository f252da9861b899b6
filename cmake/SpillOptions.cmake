# Flags every target shares, and the two helpers that declare a module and a test.

option(SPILL_TESTS "Build the tests" ON)
option(SPILL_WERROR "Treat warnings as errors (CI)" OFF)
option(SPILL_FUZZ "Build libFuzzer harnesses (clang only)" OFF)
option(SPILL_KERNELS_ONLY "Only the kernels and their tests, which need no library (cross builds)" OFF)
set(SPILL_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

add_library(spill_flags INTERFACE)
target_compile_options(spill_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
  -Wno-sign-conversion -ffp-contract=off -fno-math-errno)
target_compile_definitions(spill_flags INTERFACE _GNU_SOURCE SP_VERSION="${PROJECT_VERSION}")
target_include_directories(spill_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(spill_flags INTERFACE -march=x86-64-v2)
endif()
if(SPILL_WERROR)
  target_compile_options(spill_flags INTERFACE -Werror)
endif()
if(SPILL_SANITIZE)
  target_compile_options(spill_flags INTERFACE -fsanitize=${SPILL_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(spill_flags INTERFACE -fsanitize=${SPILL_SANITIZE})
endif()
if(SPILL_FUZZ)
  target_compile_options(spill_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# spill_module(NAME SOURCES a.c ... DEPS util ...): static library spill_NAME.
function(spill_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(spill_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(spill_${name} PUBLIC spill_flags)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(spill_${name} PUBLIC spill_${dep})
  endforeach()
  target_link_libraries(spill_${name} PUBLIC ${ARG_LIBS})
endfunction()

# spill_test(NAME LABEL unit SOURCES a.c DEPS tokenizer ...): program + ctest entry. The test runs in the
# source root, so fixtures are found as tests/fixtures/...; exit 77 is a skip.
function(spill_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;LIBS;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE spill_flags ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE spill_${dep})
  endforeach()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT})
endfunction()

# spill_fuzz(NAME SOURCES fuzz_x.c DEPS ... CORPUS dir): with SPILL_FUZZ a libFuzzer program; always a plain
# program that replays the corpus directory in ctest (tests/fuzz/replay.c gives it its main).
function(spill_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS;LIBS" ${ARGN})
  if(SPILL_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE spill_flags ${ARG_LIBS})
    foreach(dep ${ARG_DEPS})
      target_link_libraries(${name} PRIVATE spill_${dep})
    endforeach()
  endif()
  if(NOT SPILL_FUZZ)
    spill_test(${name}_replay LABEL fuzz SOURCES ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c
      DEPS ${ARG_DEPS} LIBS ${ARG_LIBS} ARGS ${ARG_CORPUS})
  endif()
endfunction()
