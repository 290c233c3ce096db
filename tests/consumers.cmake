# Registers the consumer tests: the library is installed by a build of its own, which asks for nothing that only tests and examples need, and with
# all components of this build; the project in consumer/ uses it in each of the ways that users have.

set(installed "${PROJECT_BINARY_DIR}/consumers/installed")
function(tensorpull_add_consumer how)
  add_test(NAME consumer.${how} COMMAND "${CMAKE_COMMAND}"
    "-DHOW=${how}"
    "-DSOURCE=${PROJECT_SOURCE_DIR}"
    "-DBUILD=${PROJECT_BINARY_DIR}"
    "-DINSTALLED=${installed}"
    "-DGENERATOR=${CMAKE_GENERATOR}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER}"
    "-DFLAGS=${CMAKE_CXX_FLAGS}"
    "-DTORCH_DIR=${Torch_DIR}"
    "-DCOMPONENTS=${ARGN}"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/use_as_consumer.cmake")
  set_tests_properties(consumer.${how} PROPERTIES LABELS consumer TIMEOUT 300)
endfunction()

set(ways install add_subdirectory)
set(from_installed_ways missing_component unknown_component optional_components)
if(TENSORPULL_LONG_TESTS)
  list(APPEND ways fetch_content by_default)
  list(APPEND from_installed_ways pkg_config)
endif()
foreach(how IN LISTS ways)
  tensorpull_add_consumer(${how})
endforeach()
set_tests_properties(consumer.install PROPERTIES FIXTURES_SETUP consumer_installed)

tensorpull_add_consumer(find_package)
tensorpull_add_consumer(alone_freestanding freestanding)
tensorpull_add_consumer(alone_tensorpull tensorpull)
set(from_installed find_package alone_freestanding alone_tensorpull)
foreach(component IN ITEMS messages testing)
  if(TARGET tensorpull::${component})
    tensorpull_add_consumer(alone_${component} ${component})
    list(APPEND from_installed alone_${component})
  endif()
endforeach()
foreach(how IN LISTS from_installed_ways)
  tensorpull_add_consumer(${how})
  list(APPEND from_installed ${how})
endforeach()
list(TRANSFORM from_installed PREPEND "consumer.")
set_tests_properties(${from_installed} PROPERTIES FIXTURES_REQUIRED consumer_installed)

# Needs PyPI, so only when it is asked for (tests/run.sh --all).
option(TENSORPULL_TEST_CONAN "Test the Conan recipe" OFF)
if(TENSORPULL_TEST_CONAN)
  add_test(NAME consumer.conan COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/conan.sh" "${PROJECT_BINARY_DIR}/conan")
  set_tests_properties(consumer.conan PROPERTIES LABELS consumer TIMEOUT 600)
endif()
