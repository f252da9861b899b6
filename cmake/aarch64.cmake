# Cross build of the kernels for aarch64, their tests run by qemu-user:
#   cmake --preset arm64 && cmake --build --preset arm64
# Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user. The whole program (SPILL_KERNELS_ONLY=OFF) wants the
# libraries of SpillDependencies.cmake as NAME:arm64 besides, after dpkg --add-architecture arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static) # pthread_create of the shared glibc 2.36 never returns under QEMU 7.2
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
