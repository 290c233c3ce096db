# cmake -DCOMPILER= -DINCLUDES=a|b -DFILE= -P check.cmake: compiles one wrong use and checks how it is refused. In the file:
#   // EXPECT: <text>    the diagnostic contains it; may stand more than once. Without any, the file must compile.
#   // EXPECT_GCC: <text>  the same, with g++ only: clang++ stops after 20 errors
#   // MAX_ERRORS: <n>   errors at most (3)
#   // MAX_LINES: <n>    lines of diagnostic at most (40)

string(REPLACE "|" ";" includes "${INCLUDES}")
list(TRANSFORM includes PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -fsyntax-only -fno-diagnostics-color ${includes} "${FILE}"
  RESULT_VARIABLE status
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)

file(READ "${FILE}" source)
string(REGEX MATCHALL "// EXPECT: [^\n]+" expectations "${source}")
if(NOT COMPILER MATCHES "clang")
  string(REGEX MATCHALL "// EXPECT_GCC: [^\n]+" more "${source}")
  list(APPEND expectations ${more})
endif()

function(limit name default result)
  set(value ${default})
  if(source MATCHES "// ${name}: ([0-9]+)")
    set(value ${CMAKE_MATCH_1})
  endif()
  set(${result} ${value} PARENT_SCOPE)
endfunction()
limit(MAX_ERRORS 3 most_errors)
limit(MAX_LINES 40 most_lines)

if(NOT expectations)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "must compile, and does not:\n${output}")
  endif()
  return()
endif()

if(status EQUAL 0)
  message(FATAL_ERROR "must not compile, and does")
endif()
foreach(expectation IN LISTS expectations)
  string(REGEX REPLACE "^// EXPECT(_GCC)?: " "" text "${expectation}")
  string(STRIP "${text}" text)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "the diagnostic does not say: ${text}\n${output}")
  endif()
endforeach()
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors errors)
string(REGEX MATCHALL "\n" lines "${output}")
list(LENGTH lines lines)
if(errors GREATER most_errors OR lines GREATER most_lines)
  message(FATAL_ERROR "${errors} errors in ${lines} lines; at most ${most_errors} in ${most_lines}:\n${output}")
endif()
message("${errors} errors in ${lines} lines")
