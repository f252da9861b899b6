spill_test(check_engine LABEL invariants
  SOURCES check_engine.c rig.c
  DEPS engine planner model kernels util)
target_link_options(check_engine PRIVATE
  LINKER:--wrap=malloc LINKER:--wrap=calloc LINKER:--wrap=realloc LINKER:--wrap=aligned_alloc)
