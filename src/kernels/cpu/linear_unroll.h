/* How the products tell a compiler to unroll completely and to leave addresses alone. */
#ifndef SPILL_KERNELS_CPU_LINEAR_UNROLL_H
#define SPILL_KERNELS_CPU_LINEAR_UNROLL_H

/* A pointer the compiler must keep as it is: left alone, GCC turns the unrolled loop's addresses into dozens of
 * pointers that live on the stack (a third of the speed). */
#define KEEP(pointer) __asm__("" : "+r"(pointer))
/* Loads before and after this stay so: what is read once, from memory, must be asked for in its order, or hardware does
 * not see that it could run ahead (a sixth of the rate). */
#define IN_ORDER __asm__ volatile("")
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
