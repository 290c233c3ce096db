# Which folder of include/tensorpull belongs to which component. A folder belongs to one component, with its detail/; a component has all headers
# of its folders, and no others. "." is the folder itself: the umbrella and the pipeline.

set(tensorpull_folders_freestanding
  std core image chunking integrity framing consumers protocol protocol/owner protocol/recipient protocol/connection protocol/datagrams protocol/parallel protocol/relay
  links links/serial links/lwip pull differences/scheme embedded)
set(tensorpull_folders_tensorpull
  . system integrity/xxhash integrity/crc32c consumers/any_schema consumers/average differences links/posix tensors tensors/structs tensors/numpy
  transports transports/blocking transports/session transports/peers transports/replica transports/over transports/over/loopback transports/over/tcp
  transports/over/unix_socket transports/over/pipe transports/over/proxy transports/over/udp transports/over/serial transports/over/shared_memory
  transports/http/text transports/http/recipient)
set(tensorpull_folders_asio transports/host transports/http/owner)
set(tensorpull_folders_tls transports/over/tls transports/https)
set(tensorpull_folders_nats transports/over/nats)
set(tensorpull_folders_capnp framing/capnp)
set(tensorpull_folders_messages messages)
set(tensorpull_folders_safetensors tensors/safetensors)
set(tensorpull_folders_numpy tensors/numpy_files)
set(tensorpull_folders_deflate differences/deflate)
set(tensorpull_folders_torch tensors/torch)
set(tensorpull_folders_testing testing testing/simulation testing/conformance)

# Sets <result> to the absolute paths of the component's headers.
function(tensorpull_component_headers component result)
  set(root "${PROJECT_SOURCE_DIR}/include/tensorpull")
  set(paths)
  foreach(folder IN LISTS tensorpull_folders_${component})
    file(GLOB headers CONFIGURE_DEPENDS "${root}/${folder}/*.hpp" "${root}/${folder}/detail/*.hpp")
    list(APPEND paths ${headers})
  endforeach()
  list(TRANSFORM paths REPLACE "/\\./" "/")
  set(${result} ${paths} PARENT_SCOPE)
endfunction()

# A header in a folder that no component has would be neither checked nor installed.
function(tensorpull_check_folders)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/tensorpull/*.hpp")
  foreach(component IN LISTS tensorpull_all_components)
    tensorpull_component_headers(${component} headers)
    foreach(header IN LISTS headers)
      if(NOT header IN_LIST all)
        message(FATAL_ERROR "tensorpull: ${header} belongs to two components (cmake/TensorpullHeaders.cmake)")
      endif()
      list(REMOVE_ITEM all "${header}")
    endforeach()
  endforeach()
  if(all)
    message(FATAL_ERROR "tensorpull: no component has the folder of ${all} (cmake/TensorpullHeaders.cmake)")
  endif()
endfunction()

# Makes the target tensorpull::<component> with its headers; the build target all_verify_interface_header_sets compiles each of them alone.
function(tensorpull_add_component component)
  tensorpull_component_target(${component} target)
  tensorpull_component_headers(${component} headers)
  add_library(${target} INTERFACE)
  add_library(tensorpull::${component} ALIAS ${target})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_sources(${target} INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${component} VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
endfunction()
