# Images and files are compared with what the Python packages safetensors and numpy write and read: those of the Python that has the package's tests, or
# of an environment made for that.

set(TENSORPULL_PYTHON_ENVIRONMENT "${PROJECT_BINARY_DIR}/python" CACHE PATH "Where the environment will be made if TENSORPULL_PACKAGE_PYTHON names no Python")
find_package(Python3 REQUIRED COMPONENTS Interpreter)

add_executable(tensorpull_safetensors_reference image/safetensors_reference.cpp)
target_link_libraries(tensorpull_safetensors_reference PRIVATE tensorpull::tensorpull tensorpull_dev)

add_executable(tensorpull_safetensors_files tensors/safetensors_files.cpp)
target_link_libraries(tensorpull_safetensors_files PRIVATE tensorpull::tensorpull tensorpull_dev)

set(python "${TENSORPULL_PACKAGE_PYTHON}")
if(NOT python)
  set(python "${TENSORPULL_PYTHON_ENVIRONMENT}/bin/python")
  add_test(NAME reference.environment COMMAND "${CMAKE_COMMAND}"
    "-DPYTHON=${Python3_EXECUTABLE}"
    "-DENVIRONMENT=${TENSORPULL_PYTHON_ENVIRONMENT}"
    "-DPACKAGES=safetensors==0.8.0|numpy==2.4.6"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/python_environment.cmake")
  set_tests_properties(reference.environment PROPERTIES LABELS reference FIXTURES_SETUP python TIMEOUT 600)
endif()
# tensorpull_add_reference(<name> <script> <target>): the script compares what the program does with what Python's packages do
function(tensorpull_add_reference name script target)
  add_test(NAME reference.${name} COMMAND "${python}" "${script}" "$<TARGET_FILE:${target}>")
  set_tests_properties(reference.${name} PROPERTIES LABELS reference FIXTURES_REQUIRED python TIMEOUT 600)
endfunction()
tensorpull_add_reference(safetensors "${CMAKE_CURRENT_SOURCE_DIR}/image/safetensors_reference.py" tensorpull_safetensors_reference)
tensorpull_add_reference(S9_safetensors_files "${CMAKE_CURRENT_SOURCE_DIR}/tensors/safetensors_files.py" tensorpull_safetensors_files)
