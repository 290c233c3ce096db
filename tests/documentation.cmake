# Pages, their snippets and commands, the format of the sources, and the programs of bench/.

include(snippets.cmake)
# Status 2 of the programs: doxygen or clang-format is not here.
add_test(NAME documentation.names_every_public_name COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/doc.py" --output "${PROJECT_BINARY_DIR}/doc")
# Every command that a page shows is run: here what is short, the others by the leg `pages` of tests/run.sh.
add_test(NAME pages.every_command_is_run COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/page_commands.py" check "${PROJECT_SOURCE_DIR}")
add_test(NAME pages.short_commands COMMAND "${CMAKE_COMMAND}" -E env "CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
  "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/page_commands.py" run "${PROJECT_SOURCE_DIR}" short)
add_test(NAME pages.are_read_in_five_minutes COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/page_length.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME pages.links_lead_somewhere COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/page_links.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME pages.the_checks_can_fail COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/pages_test.py")
set_tests_properties(pages.every_command_is_run pages.are_read_in_five_minutes pages.links_lead_somewhere pages.the_checks_can_fail PROPERTIES LABELS documentation TIMEOUT 60)
set_tests_properties(pages.short_commands PROPERTIES LABELS documentation TIMEOUT 1200 COST 600 SKIP_RETURN_CODE 2)
# The benchmarks are built and run by `bash bench/run.sh --smoke`, in the leg `pages`; here the compiler reads each, so that a push cannot break one.
file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.cpp" "${PROJECT_SOURCE_DIR}/bench/wan/*.cpp" "${PROJECT_SOURCE_DIR}/bench/changes/*.cpp")
get_target_property(warnings tensorpull_dev INTERFACE_COMPILE_OPTIONS)
find_path(TENSORPULL_GOOGLE_BENCHMARK benchmark/benchmark.h)
set(begin)
if("compile_fail" IN_LIST TENSORPULL_TEST_GROUPS)  # the umbrella header, which was compiled for the wrong uses
  set(begin -include "${CMAKE_CURRENT_BINARY_DIR}/compile_fail/once.hpp")
endif()
foreach(program IN LISTS programs)
  cmake_path(GET program STEM name)
  if(program MATCHES "/changes/job")
    set(name changes_job)
  endif()
  tensorpull_satellites_of(satellites "${program}")
  if(satellites STREQUAL "NOTFOUND")
    message(STATUS "bench.${name}_compiles is left out, since TENSORPULL_COMPONENTS does not name a satellite that it needs")
  elseif(name STREQUAL "micro" AND NOT TENSORPULL_GOOGLE_BENCHMARK)
    message(STATUS "bench.micro_compiles is left out: there is no Google Benchmark")
  elseif(NOT name STREQUAL "torch_throughput")  # it needs libtorch
    add_test(NAME bench.${name}_compiles COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only ${warnings} ${begin} "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/bench"
      "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/examples" "-I${PROJECT_SOURCE_DIR}/tests/support" "${program}")
    set_tests_properties(bench.${name}_compiles PROPERTIES LABELS documentation TIMEOUT 300)
    if(begin)
      set_tests_properties(bench.${name}_compiles PROPERTIES FIXTURES_REQUIRED compile_fail)
    endif()
  endif()
endforeach()
add_test(NAME format.obeys COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/format.sh" --check)
add_test(NAME format.the_check_can_fail COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/format_test.sh")
set_tests_properties(documentation.names_every_public_name format.obeys format.the_check_can_fail PROPERTIES LABELS documentation TIMEOUT 300 SKIP_RETURN_CODE 2)
