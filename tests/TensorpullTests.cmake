# tensorpull_add_tests(<folder> [TIMEOUT <seconds>] SOURCES <file>... [WITH <other file>...] [LIBS <library>...]):
# one test program from the files of tests/<folder>.
function(tensorpull_add_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;WITH;LIBS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${arg_TIMEOUT})
  endif()
  if(NOT folder IN_LIST TENSORPULL_TEST_GROUPS)
    return()
  endif()

  set(root "${CMAKE_CURRENT_SOURCE_DIR}/${folder}")
  file(GLOB_RECURSE present CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.test.cpp")
  set(unlisted ${present})
  list(REMOVE_ITEM unlisted ${arg_SOURCES})
  set(missing ${arg_SOURCES})
  list(REMOVE_ITEM missing ${present})
  if(TENSORPULL_STRICT_TEST_LISTS)
    foreach(file IN LISTS unlisted)
      message(FATAL_ERROR "tests/${folder}/${file} is not listed in tests/CMakeLists.txt")
    endforeach()
    foreach(file IN LISTS missing)
      message(FATAL_ERROR "tests/${folder}/${file} is listed in tests/CMakeLists.txt, and is not there")
    endforeach()
  endif()
  if(NOT present)
    return()
  endif()

  list(TRANSFORM present PREPEND "${root}/")
  set(target tensorpull_${folder}_tests)
  add_executable(${target} ${present} ${arg_WITH})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/support"
    "${PROJECT_SOURCE_DIR}/examples")
  target_compile_definitions(${target} PRIVATE
    "TENSORPULL_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/framing/protocol.capnp\""
    "TENSORPULL_MESSAGE_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/messages/decomposed.capnp\"")
  target_link_libraries(${target} PRIVATE tensorpull::tensorpull tensorpull_dev GTest::gtest GTest::gtest_main
    nlohmann_json::nlohmann_json ${arg_LIBS})
  if(TARGET tensorpull::asio)
    target_link_libraries(${target} PRIVATE tensorpull::asio)
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${folder}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${folder} TIMEOUT 300)
endfunction()
