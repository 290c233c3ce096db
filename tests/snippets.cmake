# The code blocks of the READMEs, each in the program around it (snippets.py): C++ is built and run, CMake configures a project against the installed
# library, Python runs with the package.

set(folder "${PROJECT_BINARY_DIR}/snippets")
execute_process(COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/snippets.py" generate "${PROJECT_SOURCE_DIR}" "${folder}"
  OUTPUT_VARIABLE programs COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.md" "${PROJECT_SOURCE_DIR}/cmake/*.md" "${PROJECT_SOURCE_DIR}/examples/*.md"
  "${PROJECT_SOURCE_DIR}/bench/*.md" "${PROJECT_SOURCE_DIR}/.github/*.md" "${CMAKE_CURRENT_SOURCE_DIR}/snippets/*" "${CMAKE_CURRENT_SOURCE_DIR}/satellites/*/snippets/*")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${pages} "${PROJECT_SOURCE_DIR}/README.md" "${CMAKE_CURRENT_SOURCE_DIR}/README.md"
  "${CMAKE_CURRENT_SOURCE_DIR}/snippets.py")
add_test(NAME snippets.are_claimed COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/snippets.py" check "${PROJECT_SOURCE_DIR}")
add_test(NAME snippets.the_check_can_fail COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/snippets_test.py")
set_tests_properties(snippets.are_claimed snippets.the_check_can_fail PROPERTIES LABELS documentation TIMEOUT 60)

# tensorpull_snippet_program(<target> <libraries> <file>...)
function(tensorpull_snippet_program target libraries)
  add_executable(${target} ${ARGN})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/snippets" "${PROJECT_SOURCE_DIR}/examples")
  target_link_libraries(${target} PRIVATE tensorpull::tensorpull ${libraries})
  target_compile_options(${target} PRIVATE -Wno-error)
endfunction()

set(parts)
set(parts_need)
set(declared)
set(chosen)
string(STRIP "${programs}" programs)
string(REPLACE "\n" ";" programs "${programs}")
foreach(line IN LISTS programs)
  string(REGEX MATCH "^([^|]*)\\|([^|]*)\\|(.*)$" unused "${line}")
  set(name "${CMAKE_MATCH_1}")
  set(language "${CMAKE_MATCH_2}")
  string(REPLACE "," ";" needs "${CMAKE_MATCH_3}")
  set(missing)
  foreach(target IN LISTS needs)
    if(NOT TARGET ${target})
      list(APPEND missing ${target})
    endif()
  endforeach()
  if(missing)
    message(STATUS "the snippet ${name} is left out: there is no ${missing}")
  elseif(language STREQUAL "part")
    list(APPEND parts "${folder}/${name}.cpp")
    list(APPEND parts_need ${needs})
    string(APPEND declared "namespace snippet_${name} { int main(); }\n")
    string(APPEND chosen "  if (name == \"${name}\") return snippet_${name}::main();\n")
    add_test(NAME snippets.${name} COMMAND tensorpull_snippets ${name})
  elseif(language STREQUAL "cpp")
    tensorpull_snippet_program(tensorpull_snippet_${name} "${needs}" "${folder}/${name}.cpp")
    add_test(NAME snippets.${name} COMMAND tensorpull_snippet_${name})
  elseif(language STREQUAL "cmake" AND TENSORPULL_INSTALL AND "consumer" IN_LIST TENSORPULL_TEST_GROUPS)
    file(MAKE_DIRECTORY "${folder}/${name}")
    configure_file("${folder}/${name}.cmake" "${folder}/${name}/CMakeLists.txt" COPYONLY)
    add_test(NAME snippets.${name} COMMAND "${CMAKE_COMMAND}" -S "${folder}/${name}" -B "${folder}/${name}/build" --fresh -G "${CMAKE_GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DCMAKE_PREFIX_PATH=${PROJECT_BINARY_DIR}/consumers/installed" "-DTorch_DIR=${Torch_DIR}"
      "-DTENSORPULL_SOURCE=${PROJECT_SOURCE_DIR}")
    set_tests_properties(snippets.${name} PROPERTIES FIXTURES_REQUIRED consumer_installed)
  elseif(language STREQUAL "python" AND TENSORPULL_PACKAGE_PYTHON)
    add_test(NAME snippets.${name} COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${PROJECT_BINARY_DIR}/python-package:${CMAKE_CURRENT_SOURCE_DIR}/satellites/python/snippets"
      "${TENSORPULL_PACKAGE_PYTHON}" "${folder}/${name}.py")
    set_tests_properties(snippets.${name} PROPERTIES FIXTURES_REQUIRED python_package)
  endif()
  if(TEST snippets.${name})
    set_tests_properties(snippets.${name} PROPERTIES LABELS documentation TIMEOUT 120)
  else()
    message(STATUS "the snippet ${name} (${language}) is left out here")
  endif()
endforeach()

# Those that have the same model are one program, whose files may be compiled at once.
file(CONFIGURE OUTPUT "${folder}/one_of_them.cpp" @ONLY CONTENT "#include <string_view>
@declared@
int main(int count, char** arguments) {
  const std::string_view name = count == 2 ? arguments[1] : \"\";
@chosen@  return 2;
}
")
list(REMOVE_DUPLICATES parts_need)
tensorpull_snippet_program(tensorpull_snippets "${parts_need}" ${parts} "${folder}/one_of_them.cpp")
set_source_files_properties("${folder}/one_of_them.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(TENSORPULL_TEST_FILES_AT_ONCE GREATER 1)
  set_target_properties(tensorpull_snippets PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
endif()
