foreach(test engine_arch engine_content engine_kv engine_sample engine_stream planner policy simulate)
  spill_test(${test}_test LABEL unit
    SOURCES ${test}_test.c engine_synthetic.c
    DEPS engine planner model kernels util
    LIBS PkgConfig::CMOCKA m)
endforeach()
