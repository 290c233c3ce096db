# The C client of NATS as the target tensorpull::libnats. The config that its own build installs fails where the static library is not installed, too.

include(FindPackageHandleStandardArgs)

find_path(TensorpullNats_INCLUDE_DIR nats/nats.h)
find_library(TensorpullNats_LIBRARY nats)
mark_as_advanced(TensorpullNats_INCLUDE_DIR TensorpullNats_LIBRARY)

set(TensorpullNats_VERSION)
if(TensorpullNats_INCLUDE_DIR)
  file(STRINGS "${TensorpullNats_INCLUDE_DIR}/nats/version.h" line REGEX "^#define NATS_VERSION_STRING ")
  string(REGEX MATCH "[0-9.]+" TensorpullNats_VERSION "${line}")
endif()

find_package_handle_standard_args(TensorpullNats
  REQUIRED_VARS TensorpullNats_LIBRARY TensorpullNats_INCLUDE_DIR
  VERSION_VAR TensorpullNats_VERSION)

if(TensorpullNats_FOUND AND NOT TARGET tensorpull::libnats)
  add_library(tensorpull::libnats UNKNOWN IMPORTED)
  set_target_properties(tensorpull::libnats PROPERTIES
    IMPORTED_LOCATION "${TensorpullNats_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TensorpullNats_INCLUDE_DIR}")
endif()
