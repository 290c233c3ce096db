# Install rules: one export set for each component, so that a user of core needs neither Boost nor Cap'n Proto.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/tensorpull")
foreach(component IN LISTS TENSORPULL_COMPONENTS)
  get_target_property(target tensorpull::${component} ALIASED_TARGET)
  install(TARGETS ${target} EXPORT tensorpull-${component} FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT tensorpull-${component} NAMESPACE tensorpull:: DESTINATION "${package_folder}")
endforeach()
# The wire, for people who read it; the schema that the component messages is generated from.
install(FILES include/tensorpull/framing/protocol.capnp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tensorpull/framing")
if("messages" IN_LIST TENSORPULL_COMPONENTS)
  install(FILES include/tensorpull/messages/decomposed.capnp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tensorpull/messages")
endif()

configure_package_config_file(cmake/tensorpullConfig.cmake.in "${PROJECT_BINARY_DIR}/tensorpullConfig.cmake"
  INSTALL_DESTINATION "${package_folder}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tensorpullConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/tensorpullConfig.cmake"
  "${PROJECT_BINARY_DIR}/tensorpullConfigVersion.cmake"
  cmake/FindTensorpullCapnProto.cmake
  cmake/FindTensorpullIsal.cmake
  cmake/FindTensorpullXxhash.cmake
  cmake/TensorpullDependencies.cmake
  cmake/TensorpullSchemas.cmake
  DESTINATION "${package_folder}")
