# Toolchain: a Cortex-M3 with newlib, no exceptions, no RTTI, no operating system.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex-m3)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_CXX_FLAGS_INIT "-mcpu=cortex-m3 -mthumb -fno-exceptions -fno-rtti")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
