# SPDX-License-Identifier: Apache-2.0
# Toolchain for 64-bit ARM Linux from any machine: zig's clang with glibc stubs, as for the wheel
# (environment `wheel` of tools/venv.sh). Tests run under qemu's user emulation with the C library of
# Debian's libc6-arm64-cross.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(NOT HVD_ZIG)
    execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../tools/venv.sh wheel
        OUTPUT_VARIABLE venv OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB zig ${venv}/lib/python3*/site-packages/ziglang/zig)
    set(HVD_ZIG ${zig} CACHE FILEPATH "The zig that compiles")
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HVD_ZIG)
set(CMAKE_C_COMPILER ${HVD_ZIG} cc)
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu.2.28)
set(CMAKE_C_FLAGS_INIT "-fno-sanitize=undefined")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
# Programs of this machine, but neither its headers nor its libraries.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
