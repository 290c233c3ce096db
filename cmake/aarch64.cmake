# Toolchain: Linux on a 64-bit ARM, as Debian's arm64 has it.
set(triplet aarch64-linux-gnu)
set(emulator qemu-aarch64)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
include("${CMAKE_CURRENT_LIST_DIR}/edge-linux.cmake")
