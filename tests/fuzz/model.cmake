foreach(name safetensors gguf config)
  spill_fuzz(fuzz_${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_${name}.c DEPS model kernels io util
    CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
endforeach()
