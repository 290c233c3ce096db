# tensorpull_add_tests(<folder> [TIMEOUT <seconds>] [WITH <other file>...] [LIBS <library>...] [NEEDS <target> <file>... <target> <file>...]): one test
# program from all *.test.cpp of tests/<folder>; those after a target of NEEDS only if there is that target. Most of the time of a run is
# spent on compiling, and optimising takes half of that; the groups of TENSORPULL_UNOPTIMISED_GROUPS gain nothing from it.
set(TENSORPULL_TEST_FILES "" CACHE STRING "A regular expression: only test files whose path in tests/ it matches are built; empty: all")
set(TENSORPULL_UNOPTIMISED_GROUPS "" CACHE STRING "Groups of tests that are compiled without optimisation, whatever the flags say")
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
  if(TENSORPULL_TEST_FILES)
    list(FILTER sources INCLUDE REGEX "/tests/(${TENSORPULL_TEST_FILES})")
  endif()
  # each target is followed by its files
  set(needed)
  foreach(item IN LISTS arg_NEEDS)
    if(item MATCHES "::")
      set(needed ${item})
      if(TARGET ${needed})
        list(APPEND arg_LIBS ${needed})
      endif()
    elseif(NOT TARGET ${needed})
      list(REMOVE_ITEM sources "${root}/${item}")
    endif()
  endforeach()
  if(NOT sources)
    message(FATAL_ERROR "tests/${folder} has no *.test.cpp")
  endif()

  set(target tensorpull_${folder}_tests)
  add_executable(${target} ${sources} ${arg_WITH})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/support"
    "${PROJECT_SOURCE_DIR}/examples")
  target_compile_definitions(${target} PRIVATE
    "TENSORPULL_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/framing/protocol.capnp\""
    "TENSORPULL_MESSAGE_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/messages/decomposed.capnp\""
    "TENSORPULL_TRANSPORTS_PAGE=\"${PROJECT_SOURCE_DIR}/include/tensorpull/transports/README.md\"")
  target_link_libraries(${target} PRIVATE tensorpull::tensorpull tensorpull_test_schema tensorpull_dev GTest::gtest GTest::gtest_main
    nlohmann_json::nlohmann_json ${arg_LIBS})
  if(folder IN_LIST TENSORPULL_UNOPTIMISED_GROUPS)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  foreach(component IN ITEMS asio messages testing)
    if(TARGET tensorpull::${component})
      target_link_libraries(${target} PRIVATE tensorpull::${component})
    endif()
  endforeach()
  gtest_discover_tests(${target} TEST_PREFIX "${folder}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${folder} TIMEOUT ${arg_TIMEOUT})
endfunction()
