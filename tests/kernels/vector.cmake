spill_test(check_vector LABEL kernel
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/check_vector.c ${CMAKE_SOURCE_DIR}/bench/vector_bench.c ${CMAKE_SOURCE_DIR}/bench/peak.c
  DEPS kernels util LIBS m)
target_include_directories(check_vector PRIVATE ${CMAKE_SOURCE_DIR})
