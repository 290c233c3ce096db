# Cap'n Proto as the target tensorpull::capnproto, with CAPNP_EXECUTABLE and CAPNPC_CXX_EXECUTABLE, its tools. Not through its own config
# file: the one that distributions have needs pkg-config, OpenSSL and the language C, for parts that are not used here.

include(FindPackageHandleStandardArgs)

find_path(TensorpullCapnProto_INCLUDE_DIR capnp/common.h)
find_library(TensorpullCapnProto_LIBRARY capnp)
find_library(TensorpullCapnProto_KJ_LIBRARY kj)
find_program(CAPNP_EXECUTABLE capnp)
find_program(CAPNPC_CXX_EXECUTABLE capnpc-c++)
mark_as_advanced(TensorpullCapnProto_INCLUDE_DIR TensorpullCapnProto_LIBRARY TensorpullCapnProto_KJ_LIBRARY CAPNP_EXECUTABLE CAPNPC_CXX_EXECUTABLE)

set(TensorpullCapnProto_VERSION)
if(TensorpullCapnProto_INCLUDE_DIR)
  foreach(part IN ITEMS MAJOR MINOR MICRO)
    file(STRINGS "${TensorpullCapnProto_INCLUDE_DIR}/capnp/common.h" line REGEX "^#define CAPNP_VERSION_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND TensorpullCapnProto_VERSION ${number})
  endforeach()
  list(JOIN TensorpullCapnProto_VERSION "." TensorpullCapnProto_VERSION)
endif()

find_package_handle_standard_args(TensorpullCapnProto
  REQUIRED_VARS TensorpullCapnProto_LIBRARY TensorpullCapnProto_KJ_LIBRARY TensorpullCapnProto_INCLUDE_DIR
                CAPNP_EXECUTABLE CAPNPC_CXX_EXECUTABLE
  VERSION_VAR TensorpullCapnProto_VERSION)

if(TensorpullCapnProto_FOUND AND NOT TARGET tensorpull::capnproto)
  add_library(tensorpull::capnproto UNKNOWN IMPORTED)
  set_target_properties(tensorpull::capnproto PROPERTIES
    IMPORTED_LOCATION "${TensorpullCapnProto_LIBRARY}"
    INTERFACE_LINK_LIBRARIES "${TensorpullCapnProto_KJ_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TensorpullCapnProto_INCLUDE_DIR}")
endif()
