# tensorpull_add_tests(<folder> [TIMEOUT <seconds>] [WITH <other file>...] [LIBS <library>...] [NEEDS <target> <file>... <target> <file>...]): one test
# program from all *.test.cpp of tests/<folder>; those after a target of NEEDS only if there is that target. Most of the time of a run is
# spent on compiling: so only the groups of TENSORPULL_OPTIMISED_GROUPS are optimised, and what nearly every file of tests includes is compiled once.
set(TENSORPULL_TEST_FILES "" CACHE STRING "A regular expression: only test files whose path in tests/ it matches are built; empty: all")
set(TENSORPULL_TEST_FILES_AT_ONCE "1" CACHE STRING "So many files of a group are compiled as one: quicker as a whole, and slower after a change")
set(TENSORPULL_OPTIMISED_GROUPS "" CACHE STRING "Groups of tests that are compiled with -O1, whatever the flags say: what computes for longer than the optimiser")

# tensorpull_precompile(<target>): the target's files begin with tests/support/precompiled.hpp, which is compiled once for all targets that are
# optimised alike. -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON compiles each file alone.
function(tensorpull_precompile target)
  get_target_property(options ${target} COMPILE_OPTIONS)
  set(shared tensorpull_precompiled)
  if("-O1" IN_LIST options)
    set(shared tensorpull_precompiled_optimised)
  endif()
  if(NOT TARGET ${shared})
    file(CONFIGURE OUTPUT ${shared}.cpp CONTENT "// Only its precompiled header is used.\n")
    add_library(${shared} OBJECT "${CMAKE_CURRENT_BINARY_DIR}/${shared}.cpp")
    target_include_directories(${shared} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_link_libraries(${shared} PRIVATE tensorpull::tensorpull tensorpull_dev GTest::gtest)
    if("-O1" IN_LIST options)
      target_compile_options(${shared} PRIVATE -O1)
    endif()
    target_precompile_headers(${shared} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/support/precompiled.hpp")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # a header that another clone has written at another time is the same header
      target_compile_options(${shared} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()

# The same for tests/satellites/<satellite>, if its component is there; it links that.
function(tensorpull_add_satellite_tests satellite)
  if(TARGET tensorpull::${satellite})
    tensorpull_add_tests(${satellite} ROOT "${PROJECT_SOURCE_DIR}/tests/satellites/${satellite}" LIBS tensorpull::${satellite} ${ARGN})
  else()
    message(STATUS "tests/satellites/${satellite} is left out: TENSORPULL_COMPONENTS does not name ${satellite}")
  endif()
endfunction()

function(tensorpull_add_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;ROOT" "WITH;LIBS;NEEDS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT folder IN_LIST TENSORPULL_TEST_GROUPS)
    return()
  endif()

  set(tests "${PROJECT_SOURCE_DIR}/tests")
  set(root "${tests}/${folder}")
  if(arg_ROOT)
    set(root "${arg_ROOT}")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${root}/*.test.cpp")
  if(TENSORPULL_TEST_FILES)
    list(FILTER sources INCLUDE REGEX "/tests/(${TENSORPULL_TEST_FILES})")
    if(NOT sources)
      return()
    endif()
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
  target_include_directories(${target} PRIVATE "${tests}" "${tests}/support" "${root}"
    "${PROJECT_SOURCE_DIR}/examples")
  target_compile_definitions(${target} PRIVATE
    "TENSORPULL_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/framing/protocol.capnp\""
    "TENSORPULL_MESSAGE_SCHEMA=\"${PROJECT_SOURCE_DIR}/include/tensorpull/messages/decomposed.capnp\""
    "TENSORPULL_TRANSPORTS_PAGE=\"${PROJECT_SOURCE_DIR}/include/tensorpull/transports/README.md\"")
  target_link_libraries(${target} PRIVATE tensorpull::tensorpull tensorpull_test_schema tensorpull_dev GTest::gtest GTest::gtest_main
    nlohmann_json::nlohmann_json ${arg_LIBS})
  if(folder IN_LIST TENSORPULL_OPTIMISED_GROUPS)
    target_compile_options(${target} PRIVATE -O1)
  endif()
  foreach(component IN ITEMS asio messages testing tls)
    if(TARGET tensorpull::${component})
      target_link_libraries(${target} PRIVATE tensorpull::${component})
    endif()
  endforeach()
  # each file has a namespace of its own
  if(TENSORPULL_TEST_FILES_AT_ONCE GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TENSORPULL_TEST_FILES_AT_ONCE})
    set_source_files_properties(${arg_WITH} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(NOT folder MATCHES "^(embedded|torch)$")  # the library of small machines is read without the other one, and libtorch has definitions of its own
    tensorpull_precompile(${target})
    # what stands for a device, or for the heap, is no test
    set_source_files_properties(${arg_WITH} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    foreach(source IN LISTS sources)  # what begins with a macro means it for the headers that it includes
      file(READ "${source}" begin LIMIT 300)
      if(begin MATCHES "#define")
        set_source_files_properties("${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${folder}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${folder} TIMEOUT ${arg_TIMEOUT})
endfunction()
