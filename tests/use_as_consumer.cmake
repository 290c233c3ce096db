# Configures, builds and runs consumer/ in the way HOW, from nothing. An installed tree is moved first: it may not remember where it was.

set(folder "${BUILD}/consumers/${HOW}")
file(REMOVE_RECURSE "${folder}")

set(options)
if(HOW MATCHES "^(find_package|core)$")
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${folder}/staged" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME "${folder}/staged" "${folder}/installed")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${folder}/installed" "-DTorch_DIR=${TORCH_DIR}")
endif()
if(HOW STREQUAL "core")
  foreach(package IN ITEMS Boost TensorpullCapnProto TensorpullXxhash TensorpullIsal Torch Threads)
    list(APPEND options "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
  endforeach()
endif()

execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}/tests/consumer" -B "${folder}/build" -G "${GENERATOR}"
  "-DHOW=${HOW}" "-DTENSORPULL_SOURCE=${SOURCE}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}" ${options}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${folder}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${folder}/build" --output-on-failure --no-tests=error
  COMMAND_ERROR_IS_FATAL ANY)
