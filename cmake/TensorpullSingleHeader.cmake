# The target single_header makes tensorpull_embedded.hpp in the build folder: what a small machine needs, in one file. Nothing else depends on it.

find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
  message(STATUS "tensorpull: no Python 3, so no target single_header")
  return()
endif()

tensorpull_component_headers(freestanding tensorpull_single_header_sources)
set(tensorpull_single_header "${PROJECT_BINARY_DIR}/tensorpull_embedded.hpp")
add_custom_command(OUTPUT "${tensorpull_single_header}"
  COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/single_header.py" --version "${PROJECT_VERSION}" --output "${tensorpull_single_header}"
  DEPENDS "${PROJECT_SOURCE_DIR}/cmake/single_header.py" ${tensorpull_single_header_sources} COMMENT "tensorpull_embedded.hpp" VERBATIM)
add_custom_target(single_header DEPENDS "${tensorpull_single_header}")
