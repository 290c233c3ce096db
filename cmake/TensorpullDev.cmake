# tensorpull_dev: what the project's own tests, examples and benchmarks are compiled with. Users never see it.

add_library(tensorpull_dev INTERFACE)
target_compile_options(tensorpull_dev INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

# Headers compiled alone are held to the same: the targets that do it take this folder's options.
get_target_property(tensorpull_dev_options tensorpull_dev INTERFACE_COMPILE_OPTIONS)
set_property(DIRECTORY APPEND PROPERTY COMPILE_OPTIONS ${tensorpull_dev_options})

# A library in C that no package of Debian has: examples/monocypher.sh fetches it there.
set(TENSORPULL_MONOCYPHER "${PROJECT_SOURCE_DIR}/build/examples/monocypher" CACHE PATH
  "Folder with monocypher.c and monocypher.h, with which a small machine verifies signatures (examples/monocypher.sh fetches them)")

# tensorpull_satellites_of(<result> <file>...): the targets of the satellites whose headers the files include; NOTFOUND if one is not a component of this build.
function(tensorpull_satellites_of result)
  set(targets)
  foreach(file IN LISTS ARGN)
    file(STRINGS "${file}" lines REGEX "^#include <tensorpull/satellites/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include <tensorpull/satellites/([a-z_]+)/.*$" "tensorpull::\\1" target "${line}")
      if(NOT TARGET ${target})
        set(${result} NOTFOUND PARENT_SCOPE)
        return()
      endif()
      list(APPEND targets ${target})
    endforeach()
  endforeach()
  set(${result} ${targets} PARENT_SCOPE)
endfunction()
