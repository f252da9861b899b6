spill_test(chat_goldens LABEL golden SOURCES ${CMAKE_CURRENT_LIST_DIR}/chat_goldens.c DEPS chat)
add_test(NAME chat_language COMMAND chat_goldens language WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(chat_language PROPERTIES LABELS golden TIMEOUT 300)
