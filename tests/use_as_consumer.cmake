# Configures, builds and runs consumer/ in the way HOW, from nothing. What is installed is moved first: it may not remember where it was.

set(folder "${BUILD}/consumers/${HOW}")
file(REMOVE_RECURSE "${folder}")
set(options "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}")

function(forbid)
  foreach(package IN LISTS ARGN)
    list(APPEND options "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
  endforeach()
  set(options "${options}" PARENT_SCOPE)
endfunction()

# The components of this build, installed.
if(HOW STREQUAL "install")
  file(REMOVE_RECURSE "${BUILD}/consumers/staged" "${INSTALLED}")
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${BUILD}/consumers/staged" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME "${BUILD}/consumers/staged" "${INSTALLED}")
  foreach(file IN ITEMS LICENSE README.md include/tensorpull/README.md examples/quickstart.cpp cmake/README.md)
    if(NOT EXISTS "${INSTALLED}/share/doc/tensorpull/${file}")
      message(FATAL_ERROR "${file} is not installed")
    endif()
  endforeach()
  # The tool that measures compile time, on a program that is no part of the tree.
  file(WRITE "${folder}/main.cpp" "int main() {}")
  find_program(PYTHON python3 REQUIRED)
  execute_process(COMMAND "${PYTHON}" "${INSTALLED}/share/doc/tensorpull/bench/compile_time/measure.py" "${folder}/main.cpp" --compilers "${COMPILER}" --rounds 1
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()

# The three commands of the README, without what only tests, examples and opt-in components need, and without Cap'n Proto.
if(HOW STREQUAL "by_default")
  forbid(GTest nlohmann_json Eigen3 OpenSSL TensorpullNats ZLIB Torch TensorpullCapnProto Python3)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${folder}/library" -G "${GENERATOR}" ${options} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${folder}/library" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${folder}/library" --prefix "${folder}/installed" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  set(INSTALLED "${folder}/installed")
endif()

# Without CMake: the two commands of the README.
if(HOW STREQUAL "pkg_config")
  find_program(PKG_CONFIG pkg-config REQUIRED)
  file(MAKE_DIRECTORY "${folder}")
  file(GLOB_RECURSE files "${INSTALLED}/tensorpull*.pc")
  foreach(file IN LISTS files)
    get_filename_component(pc_folder "${file}" DIRECTORY)
    get_filename_component(name "${file}" NAME_WE)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env "PKG_CONFIG_PATH=${pc_folder}" "${PKG_CONFIG}" --print-errors --exists "${name}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  foreach(name IN ITEMS tensorpull tensorpull-testing)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env "PKG_CONFIG_PATH=${pc_folder}" "${PKG_CONFIG}" --cflags --libs "${name}"
      OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    separate_arguments(common UNIX_COMMAND "${FLAGS}")
    execute_process(COMMAND "${COMPILER}" ${common} -std=c++20 main.cpp other_file.cpp -o "${folder}/${name}" ${flags}
      WORKING_DIRECTORY "${SOURCE}/tests/consumer" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${folder}/${name}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  return()
endif()

if(NOT HOW MATCHES "^(add_subdirectory|fetch_content)$")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${INSTALLED}" "-DTorch_DIR=${TORCH_DIR}")
endif()
# Each component finds what it needs and nothing more.
if(HOW MATCHES "^(alone_freestanding|optional_components)$")
  forbid(Boost TensorpullCapnProto nlohmann_json ZLIB Torch Threads)
elseif(HOW MATCHES "^alone_(tensorpull|testing)$")
  forbid(TensorpullCapnProto nlohmann_json ZLIB Torch Threads)
elseif(HOW STREQUAL "alone_messages")
  forbid(nlohmann_json ZLIB Torch)
endif()
if(HOW MATCHES "^(add_subdirectory|fetch_content)$")
  forbid(GTest nlohmann_json Eigen3 OpenSSL TensorpullNats ZLIB Torch TensorpullCapnProto Python3)
endif()

# A component that is not installed: find_package fails, and says what to do.
if(HOW MATCHES "^(missing|unknown)_component$")
  file(GLOB_RECURSE config "${INSTALLED}/tensorpullConfig.cmake")
  get_filename_component(config "${config}" DIRECTORY)
  if(HOW STREQUAL "missing_component")
    # As if safetensors had not been installed: a tree of the component freestanding alone. It is named twice, as if by two scripts.
    execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${folder}/library" -G "${GENERATOR}" ${options} "-DTENSORPULL_COMPONENTS=freestanding;freestanding"
      OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${CMAKE_COMMAND}" --install "${folder}/library" --prefix "${folder}/installed" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND options "-DCMAKE_PREFIX_PATH=${folder}/installed")
    set(asked safetensors)
    set(expected "without the component tensorpull, safetensors\\. It has freestanding\\." "-DTENSORPULL_COMPONENTS=freestanding;tensorpull;safetensors" "cmake --install")
  else()
    set(asked safetensor)
    set(expected "tensorpull has no component safetensor; it has freestanding, tensorpull,")
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}/tests/consumer" -B "${folder}/build" -G "${GENERATOR}" "-DHOW=alone_${asked}" ${options}
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(status EQUAL 0)
    message(FATAL_ERROR "find_package found the component ${asked}")
  endif()
  foreach(sentence IN LISTS expected)
    string(REPLACE ";" "." sentence "${sentence}")
    string(REPLACE ";" "." flat "${said}")
    if(NOT flat MATCHES "${sentence}")
      message(FATAL_ERROR "find_package should say '${sentence}', and said: ${said}")
    endif()
  endforeach()
  return()
endif()

execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}/tests/consumer" -B "${folder}/build" -G "${GENERATOR}"
  "-DHOW=${HOW}" "-DTENSORPULL_SOURCE=${SOURCE}" ${options}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${folder}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${folder}/build" --output-on-failure --no-tests=error
  COMMAND_ERROR_IS_FATAL ANY)
