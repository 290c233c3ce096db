# tensorpull_add_tests(<folder> [TIMEOUT <seconds>] [WITH <other file>...] [LIBS <library>...] [NEEDS <target> <file>...]): one test program
# from all *.test.cpp of tests/<folder>; those after NEEDS only if there is that target.
function(tensorpull_add_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "WITH;LIBS;NEEDS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT folder IN_LIST TENSORPULL_TEST_GROUPS)
    return()
  endif()

  set(root "${CMAKE_CURRENT_SOURCE_DIR}/${folder}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${root}/*.test.cpp")
  if(arg_NEEDS)
    list(POP_FRONT arg_NEEDS needed)
    if(TARGET ${needed})
      list(APPEND arg_LIBS ${needed})
    else()
      list(TRANSFORM arg_NEEDS PREPEND "${root}/")
      list(REMOVE_ITEM sources ${arg_NEEDS})
    endif()
  endif()
  if(NOT sources)
    message(FATAL_ERROR "tests/${folder} has no *.test.cpp")
  endif()

  set(target tensorpull_${folder}_tests)
  add_executable(${target} ${sources} ${arg_WITH})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/support"
    "${PROJECT_SOURCE_DIR}/examples")
  target_compile_definitions(${target} PRIVATE
    "TENSORPULL_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/framing/protocol.capnp\""
    "TENSORPULL_MESSAGE_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/messages/decomposed.capnp\"")
  target_link_libraries(${target} PRIVATE tensorpull::tensorpull tensorpull_test_schema tensorpull_dev GTest::gtest GTest::gtest_main
    nlohmann_json::nlohmann_json ${arg_LIBS})
  foreach(component IN ITEMS asio messages testing)
    if(TARGET tensorpull::${component})
      target_link_libraries(${target} PRIVATE tensorpull::${component})
    endif()
  endforeach()
  gtest_discover_tests(${target} TEST_PREFIX "${folder}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${folder} TIMEOUT ${arg_TIMEOUT})
endfunction()
