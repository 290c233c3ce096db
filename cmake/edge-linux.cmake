# What the toolchain files of Debian's cross-compilers share. Each sets `triplet` and `emulator` first.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_CXX_COMPILER ${triplet}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${triplet})
# Programs run here, under QEMU's user mode, with the other machine's libraries.
set(CMAKE_CROSSCOMPILING_EMULATOR "${emulator};-L;/usr/${triplet}")
# Libraries are those of the other machine. Headers and packages without libraries are the same for every machine: this one's will do.
set(CMAKE_FIND_ROOT_PATH /usr/${triplet})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
# Boost's configuration lies in the folder of this machine's libraries, although the library needs its headers alone.
file(GLOB boost_configuration "/usr/lib/*/cmake/Boost-*/BoostConfig.cmake")
if(boost_configuration)
  list(GET boost_configuration 0 boost_configuration)
  get_filename_component(boost_configuration "${boost_configuration}" DIRECTORY)
  set(Boost_DIR "${boost_configuration}" CACHE PATH "Where BoostConfig.cmake is")
endif()
