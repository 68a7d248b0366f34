/* SPDX-License-Identifier: Apache-2.0 */
/* isa.c - queries the CPU's instruction sets once; reduce_force_isa() overrides it in tests.
 *
 * CPUID is read directly because the compilers' own feature tests need run-time libraries that not
 * every tool chain ships.
 *
 * Thread: any; two threads that query first at the same time get the same result. Start reading at
 * isa_kernels_best(). */
#include "reduce/isa.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t saved_registers(void) /* the XCR0 register */
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool cpu_has(enum reduce_isa isa)
{
    const uint32_t avx_f16c_osxsave = bit_AVX | bit_F16C | bit_OSXSAVE;
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    const uint64_t saves_ymm = 0x06, saves_zmm = 0xe6;
    uint32_t a, b, c, d;

    if (isa == REDUCE_NEON)
        return false;
    if (isa == REDUCE_SCALAR)
        return true;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & avx_f16c_osxsave) != avx_f16c_osxsave)
        return false;
    const uint64_t saved = saved_registers();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return false;
    if (isa == REDUCE_AVX2)
        return (saved & saves_ymm) == saves_ymm;
    return (b & avx512) == avx512 && (saved & saves_zmm) == saves_zmm;
}
#else
static bool cpu_has(enum reduce_isa isa)
{
    /* The other tables are NULL here; NEON is part of every 64-bit ARM. */
    return isa == REDUCE_SCALAR || isa == REDUCE_NEON;
}
#endif

static const struct reduce_kernels *built_kernels(enum reduce_isa isa)
{
    switch (isa) {
    case REDUCE_SCALAR: return reduce_kernels_scalar();
    case REDUCE_AVX2: return reduce_kernels_avx2();
    case REDUCE_AVX512: return reduce_kernels_avx512();
    case REDUCE_NEON: return reduce_kernels_neon();
    case REDUCE_ISA_COUNT: break;
    }
    return NULL;
}

/* Both are found once: CPUID traps in a virtual machine and costs more than a small reduction. */
static _Atomic(const struct reduce_kernels *) chosen_kernels;
static _Atomic uint32_t usable_isas; /* bit per instruction set; 0: not queried yet */

static uint32_t find_usable_isas(void)
{
    uint32_t usable = 0;
    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++)
        if (built_kernels((enum reduce_isa)isa) && cpu_has((enum reduce_isa)isa))
            usable |= 1u << isa;
    return usable;
}

const struct reduce_kernels *isa_kernels(enum reduce_isa isa)
{
    uint32_t usable = atomic_load_explicit(&usable_isas, memory_order_relaxed);
    if (usable == 0) {
        usable = find_usable_isas();
        atomic_store_explicit(&usable_isas, usable, memory_order_relaxed);
    }
    return (unsigned)isa < REDUCE_ISA_COUNT && (usable >> isa) & 1 ? built_kernels(isa) : NULL;
}

const struct reduce_kernels *isa_kernels_best(void)
{
    static const enum reduce_isa best_first[] = {REDUCE_AVX512, REDUCE_AVX2, REDUCE_NEON};
    const struct reduce_kernels *kernels =
        atomic_load_explicit(&chosen_kernels, memory_order_relaxed);
    if (kernels)
        return kernels;

    for (size_t i = 0; i < sizeof(best_first) / sizeof(best_first[0]) && !kernels; i++)
        kernels = isa_kernels(best_first[i]);
    if (!kernels)
        kernels = reduce_kernels_scalar();
    atomic_store_explicit(&chosen_kernels, kernels, memory_order_relaxed);
    return kernels;
}

bool reduce_has_isa(enum reduce_isa isa)
{
    return isa_kernels(isa) != NULL;
}

void reduce_force_isa(enum reduce_isa isa)
{
    const struct reduce_kernels *kernels = isa_kernels(isa);
    if (kernels)
        atomic_store_explicit(&chosen_kernels, kernels, memory_order_relaxed);
}

const char *reduce_isa_name(enum reduce_isa isa)
{
    switch (isa) {
    case REDUCE_SCALAR: return "scalar";
    case REDUCE_AVX2: return "avx2";
    case REDUCE_AVX512: return "avx512";
    case REDUCE_NEON: return "neon";
    case REDUCE_ISA_COUNT: break;
    }
    return "unknown";
}
