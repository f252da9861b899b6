/* Which layers stay in memory when not all can: the first n of a fixed order in which every prefix is spread evenly
 * over the depth, so that between two streamed layers the drive never waits for long. To keep more, take a longer
 * prefix: what is kept already stays. Pure, thread-safe. */
#ifndef SPILL_PLANNER_PIN_H
#define SPILL_PLANNER_PIN_H

#include <stdint.h>

/* The layer that is kept as the i-th, i < n_layers; a permutation of [0, n_layers). */
uint32_t sp_pin_order(uint32_t n_layers, uint32_t i);

#endif
