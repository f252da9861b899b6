/* The floating-point environment of every compute thread: denormal inputs and results are zero, rounding to nearest
 * even (docs/DESIGN.md, Numerics). Per thread; the pool sets it around each task run. */
#ifndef SPILL_UTIL_FPENV_H
#define SPILL_UTIL_FPENV_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
typedef unsigned int sp_fpenv;
static inline sp_fpenv sp_fpenv_enter(void) { /* FTZ | DAZ, all exceptions masked, nearest */
    sp_fpenv old = _mm_getcsr();
    _mm_setcsr(0x1f80u | 0x8040u);
    return old;
}
static inline void sp_fpenv_leave(sp_fpenv old) { _mm_setcsr(old); }
#elif defined(__aarch64__)
typedef uint64_t sp_fpenv;
static inline sp_fpenv sp_fpenv_enter(void) { /* FZ */
    sp_fpenv old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    sp_fpenv now = (uint64_t)1 << 24;
    __asm__ volatile("msr fpcr, %0" ::"r"(now));
    return old;
}
static inline void sp_fpenv_leave(sp_fpenv old) { __asm__ volatile("msr fpcr, %0" ::"r"(old)); }
#else
#error "spill needs x86-64 or aarch64"
#endif

#endif
