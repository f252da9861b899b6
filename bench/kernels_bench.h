/* Speed of the products against the machine's own limits, for check_linear --bench (bench/kernels_bench.c). */
#ifndef SPILL_BENCH_KERNELS_BENCH_H
#define SPILL_BENCH_KERNELS_BENCH_H

/* Arguments: [SECTION] [--isa NAME] [--threads N] [--panels]. Prints a table; returns an exit status. */
int kernels_bench(int argc, char **argv);

#endif
