# Install rules: one export set for each component, so that a user of freestanding needs neither Boost nor Cap'n Proto.

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
  cmake/FindTensorpullNats.cmake
  cmake/TensorpullDependencies.cmake
  include/tensorpull/folders.txt
  cmake/TensorpullSchemas.cmake
  DESTINATION "${package_folder}")

# For builds without CMake: tensorpull.pc, and tensorpull-<component>.pc for the others. The prefix is relative to the file, so that the tree may be
# moved. messages has none, since its generated header fits one version of Cap'n Proto only; torch has none, since libtorch has none.
set(tensorpull_pc_capnp capnp)
set(tensorpull_pc_tls openssl)
set(pc_folder "${CMAKE_INSTALL_DATADIR}/pkgconfig")
file(RELATIVE_PATH pc_prefix "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
endif()
foreach(component IN LISTS TENSORPULL_COMPONENTS)
  if(component MATCHES "^(messages|torch)$")
    continue()
  endif()
  string(REGEX REPLACE "-tensorpull$" "" pc_name "tensorpull-${component}")
  list(TRANSFORM tensorpull_needs_${component} PREPEND "tensorpull-" OUTPUT_VARIABLE pc_requires)
  list(TRANSFORM pc_requires REPLACE "^tensorpull-tensorpull$" "tensorpull")
  list(APPEND pc_requires ${tensorpull_pc_${component}})
  foreach(library IN LISTS tensorpull_finds_${component})
    list(APPEND pc_requires ${tensorpull_pc_of_${library}})
  endforeach()
  list(JOIN pc_requires ", " pc_requires)
  set(pc_cflags)
  set(pc_libs)
  configure_file(cmake/tensorpull.pc.in "${PROJECT_BINARY_DIR}/pkgconfig/${pc_name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/pkgconfig/${pc_name}.pc" DESTINATION "${pc_folder}")
endforeach()

# All pages, where their links to each other expect them, the examples and the tool that they refer to, the table of folders, the licence.
set(doc_folder "${CMAKE_INSTALL_DATADIR}/doc/tensorpull")
file(GLOB_RECURSE pages CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include/*.md" "${PROJECT_SOURCE_DIR}/cmake/*.md"
  "${PROJECT_SOURCE_DIR}/examples/*.md" "${PROJECT_SOURCE_DIR}/bench/*.md" "${PROJECT_SOURCE_DIR}/tests/README.md" "${PROJECT_SOURCE_DIR}/.github/*.md")
file(GLOB examples CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/examples/*.cpp")
set(tool bench/driver/svg.py)
foreach(name IN ITEMS compilers measure parts report)
  list(APPEND tool "bench/compile_time/${name}.py")
endforeach()
foreach(file IN LISTS pages examples tool ITEMS README.md LICENSE include/tensorpull/folders.txt)
  get_filename_component(folder "${file}" DIRECTORY)
  # Headers are installed in another folder than the pages: links of the library's pages to them lead there.
  if(file MATCHES "^include/.*\\.md$")
    string(REGEX REPLACE "^include/?" "" below "${folder}")
    file(RELATIVE_PATH to_headers "${CMAKE_INSTALL_FULL_DATADIR}/doc/tensorpull/${folder}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}/${below}")
    string(REGEX REPLACE "/$" "" to_headers "${to_headers}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${file}")
    file(READ "${PROJECT_SOURCE_DIR}/${file}" page)
    string(REGEX REPLACE "\\]\\(([a-z_0-9/.]+\\.(hpp|capnp))\\)" "](${to_headers}/\\1)" page "${page}")
    file(WRITE "${PROJECT_BINARY_DIR}/pages/${file}" "${page}")
    set(file "${PROJECT_BINARY_DIR}/pages/${file}")
  endif()
  install(FILES "${file}" DESTINATION "${doc_folder}/${folder}")
endforeach()
