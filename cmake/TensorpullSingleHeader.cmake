# The target single_header makes tensorpull_embedded.hpp in the build folder: what a small machine needs, in one file; single_header_host makes
# tensorpull_host.hpp, where there is the component tensorpull. Nothing else depends on them.

find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
  message(STATUS "tensorpull: no Python 3, so no target single_header")
  return()
endif()

# (<name> <target> <components> [options of single_header.py...])
function(tensorpull_add_single_header name target components)
  set(sources)
  foreach(component IN LISTS components)
    tensorpull_component_headers(${component} headers)
    list(APPEND sources ${headers})
  endforeach()
  add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/${name}"
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/single_header.py" ${ARGN} --version "${PROJECT_VERSION}" --output "${PROJECT_BINARY_DIR}/${name}"
    DEPENDS "${PROJECT_SOURCE_DIR}/cmake/single_header.py" ${sources} COMMENT "${name}" VERBATIM)
  add_custom_target(${target} DEPENDS "${PROJECT_BINARY_DIR}/${name}")
endfunction()

tensorpull_add_single_header(tensorpull_embedded.hpp single_header freestanding)
if(TARGET tensorpull)
  tensorpull_add_single_header(tensorpull_host.hpp single_header_host "freestanding;tensorpull" --host)
endif()
