/* Feature detection. cpuid says what the processor has, xgetbv what the system saves on a context switch; a feature
 * counts only with both. The AMX tiles are more than that: Linux grants their 8 KB of state per process on request. */
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { DETECTED = 1u << 31 };

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* arch/x86/include/uapi/asm/prctl.h */
enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
/* Bits of XCR0: SSE and AVX state; opmask and the upper zmm state; tile config and data. */
/* cpuid leaf 7, edx; clang 14's cpuid.h lacks these */
enum { EDX_AMX_BF16 = 1 << 22, EDX_AMX_TILE = 1 << 24 };
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_AMX = 0x60000 };

static uint64_t xcr0(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_all(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

static uint32_t detect(void) {
    uint32_t a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return 0;
    const uint64_t saved = xcr0();
    if ((saved & XCR0_AVX) != XCR0_AVX || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, bit_AVX2)) return 0;
    found |= SP_CPU_AVX2;
    if ((saved & XCR0_AVX512) != XCR0_AVX512 ||
        !has_all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD))
        return found;
    found |= SP_CPU_AVX512;
    const bool tiles = has_all(d, EDX_AMX_TILE | EDX_AMX_BF16) && (saved & XCR0_AMX) == XCR0_AMX;
    if (tiles && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0) found |= SP_CPU_AMX_BF16;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && has_all(a, bit_AVX512BF16)) found |= SP_CPU_AVX512BF16;
    return found;
}
#elif defined(__aarch64__)
static uint32_t detect(void) { return SP_CPU_NEON; } /* part of the architecture */
#endif

uint32_t sp_cpu_features(void) {
    static _Atomic uint32_t cache; /* detection is idempotent, so a race only repeats it */
    uint32_t found = atomic_load_explicit(&cache, memory_order_relaxed);
    if (found == 0) {
        found = detect() | DETECTED;
        atomic_store_explicit(&cache, found, memory_order_relaxed);
    }
    return found & ~(uint32_t)DETECTED;
}
