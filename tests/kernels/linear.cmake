spill_test(check_linear LABEL kernel TIMEOUT 900 # minutes under qemu
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/check_linear.c ${CMAKE_SOURCE_DIR}/bench/kernels_bench.c ${CMAKE_SOURCE_DIR}/bench/peak.c
  DEPS kernels LIBS m)
target_include_directories(check_linear PRIVATE ${CMAKE_SOURCE_DIR})

# The AMX products on tiles in software, for a machine that lacks them: these objects take the library's place.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  spill_test(check_linear_tiles LABEL kernel
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/check_linear.c ${CMAKE_SOURCE_DIR}/bench/kernels_bench.c ${CMAKE_SOURCE_DIR}/bench/peak.c
      ${CMAKE_CURRENT_LIST_DIR}/cpu_with_tiles.c ${CMAKE_SOURCE_DIR}/src/kernels/cpu/linear_amx.c
    DEPS kernels LIBS m ARGS --isa amx)
  target_include_directories(check_linear_tiles PRIVATE ${CMAKE_SOURCE_DIR})
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/linear_amx.c PROPERTIES COMPILE_OPTIONS
    "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd;-mfma;-mf16c;-mamx-tile;-mamx-bf16;-include;${CMAKE_CURRENT_LIST_DIR}/tiles_emulated.h")
endif()
