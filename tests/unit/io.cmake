foreach(test io_ring io_pace io_drive)
  spill_test(${test}_test LABEL unit
    SOURCES ${test}_test.c
    DEPS io util
    LIBS PkgConfig::CMOCKA)
endforeach()
