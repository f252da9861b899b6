spill_fuzz(fuzz_rows SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_rows.c DEPS jobs
  CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/rows)
