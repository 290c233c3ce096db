# Registers the consumer tests: the project in consumer/ uses this library in each of the ways that users have.

foreach(how IN ITEMS find_package core add_subdirectory fetch_content)
  add_test(NAME consumer.${how} COMMAND "${CMAKE_COMMAND}"
    "-DHOW=${how}"
    "-DSOURCE=${PROJECT_SOURCE_DIR}"
    "-DBUILD=${PROJECT_BINARY_DIR}"
    "-DGENERATOR=${CMAKE_GENERATOR}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER}"
    "-DFLAGS=${CMAKE_CXX_FLAGS}"
    "-DTORCH_DIR=${Torch_DIR}"
    "-DLIBRARY_FOLDER=${CMAKE_INSTALL_LIBDIR}"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/use_as_consumer.cmake")
  set_tests_properties(consumer.${how} PROPERTIES LABELS consumer TIMEOUT 300)
endforeach()
