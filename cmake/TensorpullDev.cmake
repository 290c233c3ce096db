# tensorpull_dev: what the project's own tests, examples and benchmarks are compiled with. Users never see it.

add_library(tensorpull_dev INTERFACE)
target_compile_options(tensorpull_dev INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

# Headers compiled alone are held to the same: the targets that do it take this folder's options.
get_target_property(tensorpull_dev_options tensorpull_dev INTERFACE_COMPILE_OPTIONS)
set_property(DIRECTORY APPEND PROPERTY COMPILE_OPTIONS ${tensorpull_dev_options})
