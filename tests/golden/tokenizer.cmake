# Real tokenizers, from the archives beside the checkout where there are any: one test each.
spill_test(tokenizer_golden LABEL golden SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tokenizer_golden.c DEPS tokenizer
  LIBS PkgConfig::XXHASH ARGS llama2)
foreach(name llama3_1 qwen2_5 mistral_nemo gemma2 deepseek_v3)
  add_test(NAME tokenizer_golden_${name} COMMAND tokenizer_golden ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(tokenizer_golden_${name} PROPERTIES LABELS golden SKIP_RETURN_CODE 77 TIMEOUT 300)
endforeach()
spill_test(tokenizer_fixtures LABEL golden SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tokenizer_fixtures.c DEPS tokenizer)
spill_test(gguf_tokens LABEL golden SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gguf_tokens.c DEPS jobs)
spill_test(gguf_splits LABEL golden SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gguf_splits.c DEPS tokenizer)
