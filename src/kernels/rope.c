/* Rotary tables: cos and sin of every (position, pair) of a run of positions. */
#include "kernels/ops.h"

void sp_rope_fill(const float *inv_freq, size_t n_pairs, size_t first_pos, size_t n_positions, float scale, float *cos,
                  float *sin) {
    for (size_t i = 0; i < n_positions; i++) {
        float pos = (float)(first_pos + i);
        for (size_t j = 0; j < n_pairs; j++) {
            float sin_x, cos_x;
            sp_sincos(pos * inv_freq[j], &sin_x, &cos_x);
            cos[i * n_pairs + j] = cos_x * scale;
            sin[i * n_pairs + j] = sin_x * scale;
        }
    }
}
