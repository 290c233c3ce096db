# bench/size as a gate: the main rows are built for a Cortex-M3 and held to bench/size/bounds.json. Also built on a host that has the toolchain.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(TENSORPULL_ARM_COMPILER arm-none-eabi-g++)
add_test(NAME size.the_gate_can_fail COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/size_test.py")
set_tests_properties(size.the_gate_can_fail PROPERTIES LABELS freestanding)
if(NOT TENSORPULL_ARM_COMPILER)
  message(STATUS "the tests of bench/size are left out: there is no arm-none-eabi-g++")
  return()
endif()

set(size "${PROJECT_SOURCE_DIR}/bench/size")
set(report "${PROJECT_BINARY_DIR}/size/report.json")
# With a painted stack where QEMU is there.
add_test(NAME size.is_measured COMMAND "${Python3_EXECUTABLE}" "${size}/report.py" --main --output "${PROJECT_BINARY_DIR}/size")
set_tests_properties(size.is_measured PROPERTIES LABELS freestanding TIMEOUT 1200 FIXTURES_SETUP tensorpull_size)
add_test(NAME size.keeps_to_the_bounds COMMAND "${Python3_EXECUTABLE}" "${size}/gate.py" "${report}")
add_test(NAME size.recipients_have_no_other_code COMMAND "${Python3_EXECUTABLE}" "${size}/gate.py" --code "${report}")
add_test(NAME size.readme_has_the_figures COMMAND "${Python3_EXECUTABLE}" "${size}/gate.py" --readme "${PROJECT_SOURCE_DIR}/README.md" "${report}")
set_tests_properties(size.keeps_to_the_bounds size.recipients_have_no_other_code size.readme_has_the_figures PROPERTIES LABELS freestanding FIXTURES_REQUIRED tensorpull_size)
