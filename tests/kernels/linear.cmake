spill_test(check_linear LABEL kernel TIMEOUT 900 # minutes under qemu
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/check_linear.c ${CMAKE_SOURCE_DIR}/bench/kernels_bench.c
  DEPS kernels LIBS m)
target_include_directories(check_linear PRIVATE ${CMAKE_SOURCE_DIR})
