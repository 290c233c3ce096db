# Makes C++ headers from Cap'n Proto's schemas: of message structs taken apart, for the component messages, and of the wire protocol, for the
# tests. Such a header fits one version of Cap'n Proto, so it is made by each build, and by each project that uses an installed tensorpull.
# At configure time: an interface library has no build step.

# <include>/tensorpull/<name>.capnp is compiled to <output>/tensorpull/<name>.capnp.h, if that is not there already.
function(tensorpull_generate_schema include output name)
  set(schema "${include}/tensorpull/${name}.capnp")
  set(header "${output}/tensorpull/${name}.capnp.h")
  get_filename_component(folder "${name}" DIRECTORY)
  get_filename_component(stamp "${name}" NAME)
  set(stamp "${output}/../${stamp}.stamp")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${schema}")

  file(SHA256 "${schema}" digest)
  set(wanted "${digest} ${TensorpullCapnProto_VERSION} ${CAPNP_EXECUTABLE} ${CAPNPC_CXX_EXECUTABLE}")
  if(EXISTS "${header}" AND EXISTS "${stamp}")
    file(READ "${stamp}" present)
    if(present STREQUAL wanted)
      return()
    endif()
  endif()

  file(MAKE_DIRECTORY "${output}/tensorpull/${folder}")
  execute_process(
    COMMAND "${CAPNP_EXECUTABLE}" compile "-I${TensorpullCapnProto_INCLUDE_DIR}" --src-prefix=tensorpull/${folder}
            "-o${CAPNPC_CXX_EXECUTABLE}:${output}/tensorpull/${folder}" tensorpull/${name}.capnp
    WORKING_DIRECTORY "${include}"
    RESULT_VARIABLE status
    ERROR_VARIABLE message)
  if(status OR NOT EXISTS "${header}")
    message(FATAL_ERROR "tensorpull: ${CAPNP_EXECUTABLE} could not compile ${schema} (${status})\n${message}")
  endif()
  file(REMOVE "${output}/tensorpull/${name}.capnp.c++")
  file(STRINGS "${header}" version_check REGEX "CAPNP_VERSION != [0-9]+")
  string(REGEX MATCH "[0-9]+" tool_version "${version_check}")
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)\\.([0-9]+)" unused "${TensorpullCapnProto_VERSION}")
  math(EXPR library_version "${CMAKE_MATCH_1} * 1000000 + ${CMAKE_MATCH_2} * 1000 + ${CMAKE_MATCH_3}")
  if(tool_version AND NOT tool_version EQUAL library_version)
    message(FATAL_ERROR "tensorpull: ${CAPNP_EXECUTABLE} is of version ${tool_version}, but the Cap'n Proto library found is "
                        "${TensorpullCapnProto_VERSION}; set CAPNP_EXECUTABLE and CAPNPC_CXX_EXECUTABLE to that library's tools")
  endif()
  file(WRITE "${stamp}" "${wanted}")
endfunction()
