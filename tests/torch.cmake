# State dicts are exchanged with Python's torch and safetensors: those of the Python that this build's libtorch came with.

set(TENSORPULL_TORCH_PYTHON "${Python3_EXECUTABLE}" CACHE FILEPATH "A Python that has torch and safetensors")
if(NOT TARGET tensorpull::safetensors)
  message(STATUS "torch.round_trip is left out: TENSORPULL_COMPONENTS does not name safetensors")
  return()
endif()
if(NOT TENSORPULL_TORCH_PYTHON)
  message(STATUS "torch.round_trip is left out: TENSORPULL_TORCH_PYTHON names no Python that has torch and safetensors")
  return()
endif()

add_executable(tensorpull_torch_round_trip torch/round_trip.cpp)
target_link_libraries(tensorpull_torch_round_trip PRIVATE tensorpull::torch tensorpull::safetensors tensorpull_dev)
add_test(NAME torch.round_trip COMMAND "${TENSORPULL_TORCH_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/torch/round_trip.py"
  "$<TARGET_FILE:tensorpull_torch_round_trip>")
set_tests_properties(torch.round_trip PROPERTIES LABELS torch TIMEOUT 300)
