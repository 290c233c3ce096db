# xxHash as the target tensorpull::xxhash. Distributions build it with make, so it comes without a CMake config.
# Where a cross-compiler finds the header and no library for its machine, the library's functions are compiled from the header, which has all of them.

include(FindPackageHandleStandardArgs)

find_path(TensorpullXxhash_INCLUDE_DIR xxhash.h)
find_library(TensorpullXxhash_LIBRARY xxhash)
mark_as_advanced(TensorpullXxhash_INCLUDE_DIR TensorpullXxhash_LIBRARY)

set(TensorpullXxhash_VERSION)
if(TensorpullXxhash_INCLUDE_DIR)
  foreach(part MAJOR MINOR RELEASE)
    file(STRINGS "${TensorpullXxhash_INCLUDE_DIR}/xxhash.h" line REGEX "^#define XXH_VERSION_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND TensorpullXxhash_VERSION ${number})
  endforeach()
  list(JOIN TensorpullXxhash_VERSION "." TensorpullXxhash_VERSION)
endif()

set(TensorpullXxhash_NEEDED TensorpullXxhash_LIBRARY TensorpullXxhash_INCLUDE_DIR)
if(CMAKE_CROSSCOMPILING AND NOT TensorpullXxhash_LIBRARY)
  set(TensorpullXxhash_NEEDED TensorpullXxhash_INCLUDE_DIR)
endif()
find_package_handle_standard_args(TensorpullXxhash REQUIRED_VARS ${TensorpullXxhash_NEEDED} VERSION_VAR TensorpullXxhash_VERSION)

if(TensorpullXxhash_FOUND AND NOT TARGET tensorpull::xxhash AND NOT TensorpullXxhash_LIBRARY)
  add_library(tensorpull::xxhash INTERFACE IMPORTED)
  set_target_properties(tensorpull::xxhash PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "XXH_INLINE_ALL="
    INTERFACE_INCLUDE_DIRECTORIES "${TensorpullXxhash_INCLUDE_DIR}")
elseif(TensorpullXxhash_FOUND AND NOT TARGET tensorpull::xxhash)
  add_library(tensorpull::xxhash UNKNOWN IMPORTED)
  set_target_properties(tensorpull::xxhash PROPERTIES
    IMPORTED_LOCATION "${TensorpullXxhash_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TensorpullXxhash_INCLUDE_DIR}")
endif()
