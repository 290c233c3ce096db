# What each component needs from others; read by the project itself and, installed, by its config file.

set(tensorpull_libraries_tensorpull Boost::headers CapnProto::capnp CapnProto::kj tensorpull::xxhash)
set(tensorpull_libraries_asio Threads::Threads)

# Cap'n Proto's config file looks for libatomic with a test program that is no valid C++, so without C it finds none. This looks
# in its place.
function(tensorpull_check_libatomic)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "C" IN_LIST languages)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES atomic)
    check_cxx_source_compiles("int main() { return 0; }" FOUND_LIBATOMIC)
  endif()
endfunction()

# Finds what the component needs; <finder> is find_package or find_dependency. A macro: a find_dependency that fails returns from
# the config file that called it.
macro(tensorpull_find_dependencies component finder)
  if("${component}" STREQUAL "tensorpull")
    cmake_language(CALL ${finder} Boost 1.74 CONFIG ${ARGN})
    tensorpull_check_libatomic()
    cmake_language(CALL ${finder} CapnProto CONFIG ${ARGN})
    if(CapnProto_FOUND AND CapnProto_VERSION VERSION_LESS 0.9.2)
      message(FATAL_ERROR "tensorpull needs Cap'n Proto 0.9.2 or newer; found ${CapnProto_VERSION}")
    endif()
    list(PREPEND CMAKE_MODULE_PATH "${tensorpull_cmake_folder}")
    cmake_language(CALL ${finder} TensorpullXxhash 0.8 MODULE ${ARGN})
    list(POP_FRONT CMAKE_MODULE_PATH)
  elseif("${component}" STREQUAL "asio")
    cmake_language(CALL ${finder} Threads ${ARGN})
  endif()
endmacro()

set(tensorpull_cmake_folder "${CMAKE_CURRENT_LIST_DIR}")
