# What each component needs; read by the project itself and, installed, by its config file.

# Other components.
set(tensorpull_needs_tensorpull core)
set(tensorpull_needs_asio tensorpull)
set(tensorpull_needs_capnp core)
set(tensorpull_needs_messages tensorpull capnp)
set(tensorpull_needs_crc32c tensorpull)
set(tensorpull_needs_safetensors tensorpull)
set(tensorpull_needs_numpy tensorpull)
set(tensorpull_needs_torch tensorpull)
set(tensorpull_needs_testing tensorpull)

# Other libraries, as targets.
set(tensorpull_libraries_tensorpull Boost::headers tensorpull::xxhash)
set(tensorpull_libraries_asio Threads::Threads)
set(tensorpull_libraries_capnp tensorpull::capnproto)
set(tensorpull_libraries_crc32c tensorpull::isal)
set(tensorpull_libraries_safetensors nlohmann_json::nlohmann_json)
set(tensorpull_libraries_numpy ZLIB::ZLIB)
set(tensorpull_libraries_torch torch)
set(tensorpull_cmake_folder "${CMAKE_CURRENT_LIST_DIR}")

# The name of the component's own target: the component tensorpull is the library's name.
function(tensorpull_component_target component result)
  if(component STREQUAL "tensorpull")
    set(${result} tensorpull PARENT_SCOPE)
  else()
    set(${result} tensorpull_${component} PARENT_SCOPE)
  endif()
endfunction()

# Finds what the component needs; <finder> is find_package or find_dependency. A macro: a find_dependency that fails returns from
# the config file that called it.
macro(tensorpull_find_dependencies component finder)
  list(PREPEND CMAKE_MODULE_PATH "${tensorpull_cmake_folder}")
  if("${component}" STREQUAL "tensorpull")
    cmake_language(CALL ${finder} Boost 1.74 CONFIG ${ARGN})
    cmake_language(CALL ${finder} TensorpullXxhash 0.8 MODULE ${ARGN})
  elseif("${component}" STREQUAL "asio")
    cmake_language(CALL ${finder} Threads ${ARGN})
  elseif("${component}" STREQUAL "capnp")
    cmake_language(CALL ${finder} TensorpullCapnProto 0.9.2 MODULE ${ARGN})
  elseif("${component}" STREQUAL "crc32c")
    cmake_language(CALL ${finder} TensorpullIsal 2.30 MODULE ${ARGN})
  elseif("${component}" STREQUAL "safetensors")
    cmake_language(CALL ${finder} nlohmann_json 3.11 CONFIG ${ARGN})
  elseif("${component}" STREQUAL "numpy")
    cmake_language(CALL ${finder} ZLIB 1.2.11 ${ARGN})
  elseif("${component}" STREQUAL "torch")
    cmake_language(CALL ${finder} Torch 1.13 CONFIG ${ARGN})
  endif()
  list(POP_FRONT CMAKE_MODULE_PATH)
endmacro()
