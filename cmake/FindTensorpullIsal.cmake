# Intel's ISA-L as the target tensorpull::isal. It is built with autotools, so it comes without a CMake config.

include(FindPackageHandleStandardArgs)

find_path(TensorpullIsal_INCLUDE_DIR isa-l/crc.h)
find_library(TensorpullIsal_LIBRARY isal)
mark_as_advanced(TensorpullIsal_INCLUDE_DIR TensorpullIsal_LIBRARY)

set(TensorpullIsal_VERSION)
if(TensorpullIsal_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${TensorpullIsal_INCLUDE_DIR}/isa-l.h" line REGEX "^#define ISAL_${part}_VERSION +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND TensorpullIsal_VERSION ${number})
  endforeach()
  list(JOIN TensorpullIsal_VERSION "." TensorpullIsal_VERSION)
endif()

find_package_handle_standard_args(TensorpullIsal
  REQUIRED_VARS TensorpullIsal_LIBRARY TensorpullIsal_INCLUDE_DIR
  VERSION_VAR TensorpullIsal_VERSION)

if(TensorpullIsal_FOUND AND NOT TARGET tensorpull::isal)
  add_library(tensorpull::isal UNKNOWN IMPORTED)
  set_target_properties(tensorpull::isal PROPERTIES
    IMPORTED_LOCATION "${TensorpullIsal_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TensorpullIsal_INCLUDE_DIR}")
endif()
