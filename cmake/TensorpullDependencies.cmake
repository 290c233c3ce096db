# What each component needs from others; read by the project itself and, installed, by its config file.

set(tensorpull_libraries_tensorpull Boost::headers tensorpull::capnproto tensorpull::xxhash)
set(tensorpull_libraries_asio Threads::Threads)
set(tensorpull_libraries_crc32c tensorpull::isal)
set(tensorpull_libraries_torch torch)
set(tensorpull_cmake_folder "${CMAKE_CURRENT_LIST_DIR}")

# Finds what the component needs; <finder> is find_package or find_dependency. A macro: a find_dependency that fails returns from
# the config file that called it.
macro(tensorpull_find_dependencies component finder)
  list(PREPEND CMAKE_MODULE_PATH "${tensorpull_cmake_folder}")
  if("${component}" STREQUAL "tensorpull")
    cmake_language(CALL ${finder} Boost 1.74 CONFIG ${ARGN})
    cmake_language(CALL ${finder} TensorpullCapnProto 0.9.2 MODULE ${ARGN})
    cmake_language(CALL ${finder} TensorpullXxhash 0.8 MODULE ${ARGN})
  elseif("${component}" STREQUAL "asio")
    cmake_language(CALL ${finder} Threads ${ARGN})
  elseif("${component}" STREQUAL "crc32c")
    cmake_language(CALL ${finder} TensorpullIsal 2.30 MODULE ${ARGN})
  elseif("${component}" STREQUAL "torch")
    cmake_language(CALL ${finder} Torch 1.13 CONFIG ${ARGN})
  endif()
  list(POP_FRONT CMAKE_MODULE_PATH)
endmacro()
