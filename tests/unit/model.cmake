foreach(test config formats rope)
  spill_test(model_${test}_test LABEL unit
    SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/model_${test}_test.c ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c
    DEPS model kernels io util LIBS PkgConfig::CMOCKA)
endforeach()
