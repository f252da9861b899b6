/* What the ISAs whose words are fp32 numbers share: activations packed even columns first. */
static inline void pack_block(sp_mode mode, const float *restrict x, word *restrict out) {
    if (mode == SP_MODE_BF16)
        for (int i = 0; i < 16; i++) {
            out[i] = sp_bf16_to_f32(sp_bf16_from_f32(x[2 * i]));
            out[16 + i] = sp_bf16_to_f32(sp_bf16_from_f32(x[2 * i + 1]));
        }
    else
        for (int i = 0; i < 16; i++) {
            out[i] = x[2 * i];
            out[16 + i] = x[2 * i + 1];
        }
}
