# The target single_header makes tensorpull_embedded.hpp in the build folder, which has what a small machine needs, and ground_header tensorpull_ground.hpp, which has
# the ground floor of hosts, for Compiler Explorer. Nothing else depends on them.

find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
  message(STATUS "tensorpull: no Python 3, so no targets single_header and ground_header")
  return()
endif()

tensorpull_component_headers(freestanding tensorpull_single_header_sources)
tensorpull_component_headers(tensorpull tensorpull_ground_header_sources)
list(APPEND tensorpull_ground_header_sources ${tensorpull_single_header_sources})
# Of satellites it has what small machines need, wherever that lies.
file(GLOB_RECURSE of_satellites CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/tensorpull/satellites/*.hpp")
list(APPEND tensorpull_single_header_sources ${of_satellites})
foreach(kind IN ITEMS embedded ground)
  set(target ${kind}_header)
  if(kind STREQUAL embedded)
    set(target single_header)
  endif()
  set(output "${PROJECT_BINARY_DIR}/tensorpull_${kind}.hpp")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/single_header.py" --of ${kind} --version "${PROJECT_VERSION}" --output "${output}"
    DEPENDS "${PROJECT_SOURCE_DIR}/cmake/single_header.py" ${tensorpull_${target}_sources} COMMENT "tensorpull_${kind}.hpp" VERBATIM)
  add_custom_target(${target} DEPENDS "${output}")
endforeach()
