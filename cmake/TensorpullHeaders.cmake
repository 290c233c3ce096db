# Which header belongs to which component. A header that is named nowhere here belongs to the component tensorpull.

set(tensorpull_core_folders core image chunking protocol)
set(tensorpull_core_files
  consumers/concept.hpp
  consumers/land.hpp
  framing/control_reader.hpp
  framing/control_words.hpp
  framing/control_writer.hpp
  framing/framing_concept.hpp
  framing/list_storage.hpp
  framing/payload_prefix.hpp
  framing/segment_reader.hpp
  framing/segment_table.hpp
  framing/word_framing.hpp
  integrity/concept.hpp
  integrity/digest_kind.hpp
  transports/concept.hpp
  transports/pump.hpp)
set(tensorpull_asio_files
  transports/tcp_connection.hpp
  transports/tcp_host.hpp
  transports/tcp_host_impl.hpp
  transports/tcp_owner.hpp)
set(tensorpull_crc32c_files
  integrity/crc32c.hpp)
set(tensorpull_safetensors_files
  tensors/header_events.hpp
  tensors/safetensors.hpp
  tensors/safetensors_header.hpp
  tensors/safetensors_image.hpp
  tensors/safetensors_table.hpp)
set(tensorpull_numpy_files
  tensors/numpy_file.hpp)
set(tensorpull_torch_files
  tensors/torch.hpp
  tensors/torch_dtype.hpp
  tensors/torch_reader.hpp
  tensors/torch_state.hpp
  tensors/torch_ties.hpp)

# Sets <result> to the absolute paths of the component's headers.
function(tensorpull_component_headers component result)
  set(root "${PROJECT_SOURCE_DIR}/include/tensorpull")
  file(GLOB_RECURSE all CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.hpp")
  set(core ${all})
  list(JOIN tensorpull_core_folders "|" folders)
  list(FILTER core INCLUDE REGEX "^(${folders})/")
  list(APPEND core ${tensorpull_core_files})
  if(component STREQUAL "core")
    set(mine ${core})
  elseif(component STREQUAL "asio")
    set(mine ${tensorpull_asio_files})
  elseif(component STREQUAL "crc32c")
    set(mine ${tensorpull_crc32c_files})
  elseif(component STREQUAL "safetensors")
    set(mine ${tensorpull_safetensors_files})
  elseif(component STREQUAL "numpy")
    set(mine ${tensorpull_numpy_files})
  elseif(component STREQUAL "torch")
    set(mine ${tensorpull_torch_files})
  else()
    set(mine ${all})
    list(REMOVE_ITEM mine ${core} ${tensorpull_asio_files} ${tensorpull_crc32c_files} ${tensorpull_safetensors_files} ${tensorpull_numpy_files}
         ${tensorpull_torch_files})
  endif()
  set(paths)
  foreach(file IN LISTS mine)
    if(file IN_LIST all)
      list(APPEND paths "${root}/${file}")
    endif()
  endforeach()
  set(${result} ${paths} PARENT_SCOPE)
endfunction()

# Makes the target tensorpull::<component> with its headers; the build target all_verify_interface_header_sets compiles each of them alone.
function(tensorpull_add_component component)
  if(component STREQUAL "tensorpull")
    set(target tensorpull)
  else()
    set(target tensorpull_${component})
  endif()
  tensorpull_component_headers(${component} headers)
  add_library(${target} INTERFACE)
  add_library(tensorpull::${component} ALIAS ${target})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_sources(${target} INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${component} VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
endfunction()
