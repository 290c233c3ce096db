# Toolchain: Linux on a big-endian machine of 64 bits, as Debian's s390x has it.
set(triplet s390x-linux-gnu)
set(emulator qemu-s390x)
set(CMAKE_SYSTEM_PROCESSOR s390x)
include("${CMAKE_CURRENT_LIST_DIR}/edge-linux.cmake")
