# Toolchain: Linux on a 32-bit ARM, as Debian's armhf has it. Files above 2 GiB need an off_t of 64 bits, which is not the default there.
set(triplet arm-linux-gnueabihf)
set(emulator qemu-arm)
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(CMAKE_CXX_FLAGS_INIT "-D_FILE_OFFSET_BITS=64")
include("${CMAKE_CURRENT_LIST_DIR}/edge-linux.cmake")
