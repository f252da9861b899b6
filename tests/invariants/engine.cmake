# All fixtures; with a sanitizer, which makes it ten times as long, one of each kind.
set(models "")
if(SPILL_SANITIZE)
  set(models tests/fixtures/families/odd-llama tests/fixtures/families/phi3-longrope
    tests/fixtures/families/sharded-llama3 tests/fixtures/gguf/qwen3-q5_1.gguf)
endif()
spill_test(check_engine LABEL invariants
  SOURCES check_engine.c rig.c
  ARGS ${models}
  DEPS engine planner model kernels util)
target_link_options(check_engine PRIVATE
  LINKER:--wrap=malloc LINKER:--wrap=calloc LINKER:--wrap=realloc LINKER:--wrap=aligned_alloc)
