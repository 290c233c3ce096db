# The Python package: pip installs it from the tree, into a folder of its own; then its tests run, with a C++ program as the other end.

set(TENSORPULL_PACKAGE_PYTHON "" CACHE FILEPATH "A Python that has torch, pytest, and what builds and tests examples/python")
if(NOT TENSORPULL_PACKAGE_PYTHON)
  message(STATUS "python.package is left out: TENSORPULL_PACKAGE_PYTHON names no Python")
  return()
endif()

add_executable(tensorpull_cpp_end python/cpp_end.cpp)
target_link_libraries(tensorpull_cpp_end PRIVATE tensorpull::asio tensorpull::safetensors tensorpull_dev)

set(messages_end)
if(TARGET tensorpull::messages)
  add_executable(tensorpull_cpp_messages python/cpp_messages.cpp)
  target_link_libraries(tensorpull_cpp_messages PRIVATE tensorpull::messages tensorpull_dev)
  set(messages_end "TENSORPULL_CPP_MESSAGES=$<TARGET_FILE:tensorpull_cpp_messages>")
endif()

set(package "${PROJECT_BINARY_DIR}/python-package")
# COST: what takes long begins first, so that no processor is idle at the end. -O1 is compiled in two thirds of the time of -O3, which python.wheel has if
# TENSORPULL_WHOLE_SCHEDULE is 1. The tools are those of this build, if it has them: python.wheel compiles them as the package does then.
set(tools_option)
if(TARGET send AND TARGET recv AND TARGET inspect)
  set(tools_option "--config-settings=cmake.define.TENSORPULL_PYTHON_TOOLS=OFF")
endif()
add_test(NAME python.install
  COMMAND "${TENSORPULL_PACKAGE_PYTHON}" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --upgrade
          --target "${package}" "--config-settings=build-dir=${package}-build" "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=${CMAKE_CXX_FLAGS} -O1 -DNDEBUG"
          ${tools_option} "${PROJECT_SOURCE_DIR}/examples/python")
set_tests_properties(python.install PROPERTIES LABELS python TIMEOUT 1200 COST 1000 FIXTURES_SETUP "python_compiled;python_package")
if(tools_option)
  add_test(NAME python.tools COMMAND "${CMAKE_COMMAND}" "-DTOOLS=$<TARGET_FILE:send>;$<TARGET_FILE:recv>;$<TARGET_FILE:inspect>" "-DTO=${package}/tensorpull/_tools" -P "${CMAKE_CURRENT_SOURCE_DIR}/python/copy_tools.cmake")
  set_tests_properties(python.tools PROPERTIES LABELS python COST 950 DEPENDS python.install FIXTURES_REQUIRED python_compiled FIXTURES_SETUP python_package)
endif()
add_test(NAME python.package
  COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${package}" "TENSORPULL_CPP_END=$<TARGET_FILE:tensorpull_cpp_end>" ${messages_end} TENSORPULL_NOTHING_IS_SKIPPED=1
          "${TENSORPULL_PACKAGE_PYTHON}" -m pytest -p no:cacheprovider "${PROJECT_SOURCE_DIR}/tests/python")
set_tests_properties(python.package PROPERTIES LABELS python TIMEOUT 2400 COST 800 FIXTURES_REQUIRED python_package)

# Publishing, serving, withdrawing and reading on many threads: for a minute, or as long as TENSORPULL_PYTHON_RACE_SECONDS says.
add_test(NAME python.threads
  COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${package}" "${TENSORPULL_PACKAGE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/python/threads.py")
set_tests_properties(python.threads PROPERTIES LABELS python TIMEOUT 4000 COST 700 FIXTURES_REQUIRED python_package)

if(TENSORPULL_LONG_TESTS)
  # The package as it travels: a source distribution without what it does not need, and with TENSORPULL_WHOLE_SCHEDULE a wheel from it for other machines (python/wheel.py).
  add_test(NAME python.wheel
    COMMAND "${TENSORPULL_PACKAGE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/python/wheel.py" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/python-wheel")
  set_tests_properties(python.wheel PROPERTIES LABELS python TIMEOUT 1800 COST 900)
endif()

# Jobs of NVIDIA FLARE with its own processes: four cases, or all of them if TENSORPULL_NVFLARE_ALL is 1 when the tests run. It ends with 77 where there is no nvflare.
set(devices)
if(TARGET federated_clients_tls AND TARGET microcontroller_clients)
  set(devices "TENSORPULL_FEDERATED_CLIENTS_TLS=$<TARGET_FILE:federated_clients_tls>" "TENSORPULL_MICROCONTROLLER_CLIENTS=$<TARGET_FILE:microcontroller_clients>")
endif()
add_test(NAME nvflare.jobs
  COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${package}" ${devices} "${TENSORPULL_PACKAGE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/nvflare/jobs.py")
set_tests_properties(nvflare.jobs PROPERTIES LABELS python TIMEOUT 7200 COST 850 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED python_package)
