# SPDX-License-Identifier: Apache-2.0
# Compiler and linker flags, kept on two interface targets: hvd_flags for our own sources, and
# hvd_system for what everything that links the core needs.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Assertions state invariants and stay in.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
# Executables are position independent too: address randomisation is part of the hardening.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
add_library(hvd_system INTERFACE)
target_link_libraries(hvd_system INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)

add_library(hvd_flags INTERFACE)
target_compile_options(hvd_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla)
# zig defines NDEBUG by itself when it optimises.
target_compile_options(hvd_flags INTERFACE -UNDEBUG)
# Tensor memory arrives as bytes and is read as numbers.
target_compile_options(hvd_flags INTERFACE -fno-strict-aliasing)
# A sum must not depend on whether the compiler fused a multiply and an add.
target_compile_options(hvd_flags INTERFACE -ffp-contract=off)
if(HVD_WERROR)
    target_compile_options(hvd_flags INTERFACE -Werror)
endif()

# Instrumentation must reach every object, so it is global.
set(HVD_INSTRUMENTED OFF)
if(HVD_FUZZ)
    set(HVD_INSTRUMENTED ON)
    add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=address,undefined)
elseif(HVD_SANITIZE)
    set(HVD_INSTRUMENTED ON)
    add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${HVD_SANITIZE})
endif()
if(HVD_COVERAGE)
    set(HVD_INSTRUMENTED ON)
    add_compile_options(--coverage -fprofile-update=atomic)
    add_link_options(--coverage)
endif()

# Hardening. Sanitizers bring their own interceptors, which FORTIFY would bypass.
check_c_compiler_flag(-fstack-protector-strong HVD_HAS_STACK_PROTECTOR)
if(HVD_HAS_STACK_PROTECTOR)
    target_compile_options(hvd_flags INTERFACE -fstack-protector-strong)
endif()
if(NOT HVD_INSTRUMENTED AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(hvd_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
foreach(flag relro now noexecstack)
    check_linker_flag(C "LINKER:-z,${flag}" HVD_HAS_LINK_${flag})
    if(HVD_HAS_LINK_${flag})
        target_link_options(hvd_flags INTERFACE "LINKER:-z,${flag}")
    endif()
endforeach()
