/* Speed of attention, norms and activations, for check_vector --bench (bench/vector_bench.c). */
#ifndef SPILL_BENCH_VECTOR_BENCH_H
#define SPILL_BENCH_VECTOR_BENCH_H

/* Arguments: [SECTION] [--isa NAME] [--threads N]. Prints a table; returns an exit status. */
int vector_bench(int argc, char **argv);

#endif
