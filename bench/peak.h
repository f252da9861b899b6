/* What a machine's registers can do, measured beside the kernels, and the clock that both are measured by. */
#ifndef SPILL_BENCH_PEAK_H
#define SPILL_BENCH_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "util/threads.h"

/* One thread is timed by its own processor time, which a busy machine disturbs least; several by the wall clock. */
uint64_t bench_now_ns(const sp_pool *pool);

/* FLOP/s of a burst of register-only multiply-adds on every thread; 0 where the ISA's peak is not known. That of tiles
 * is taken with numbers like those of bench_fill: with zeros they draw less and run a quarter faster. */
double bench_peak(sp_pool *pool, const char *isa);

/* bf16 pairs, halves and bytes: finite and never denormal. */
void bench_fill(uint8_t *w, size_t n_bytes);

#endif
