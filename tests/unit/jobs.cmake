spill_test(test_request LABEL unit SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_request.c DEPS jobs LIBS PkgConfig::CMOCKA)
spill_test(test_input LABEL unit SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_input.c DEPS jobs LIBS PkgConfig::CMOCKA)
spill_test(test_util LABEL unit SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_util.c DEPS util LIBS PkgConfig::CMOCKA)
spill_test(test_pool LABEL unit SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_pool.c DEPS util LIBS PkgConfig::CMOCKA)
