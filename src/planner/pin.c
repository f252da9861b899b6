/* Van der Corput's sequence in base 2: 0, 1/2, 1/4, 3/4, 1/8 ... of the next power of two, without what lies beyond the
 * last layer. */
#include "planner/pin.h"

#include <assert.h>

static uint32_t reverse_bits(uint32_t value, uint32_t n_bits) {
    uint32_t reversed = 0;
    for (uint32_t b = 0; b < n_bits; b++) reversed |= (value >> b & 1u) << (n_bits - 1 - b);
    return reversed;
}

uint32_t sp_pin_order(uint32_t n_layers, uint32_t i) {
    assert(i < n_layers);
    uint32_t n_bits = 0;
    while (n_bits < 31 && 1u << n_bits < n_layers) n_bits++;
    for (uint32_t at = 0;; at++) {
        uint32_t layer = reverse_bits(at, n_bits);
        if (layer < n_layers && i-- == 0) return layer;
    }
}
