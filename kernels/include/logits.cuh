// logits - what the kernels that pick a token share: a row read four at a time, and integers in the order of floats.
#pragma once

// Unsigned integers in the order of the floats; -0 equals +0. Not for NaN.
TURBO_DEVICE unsigned order_bits(float x) {
    const unsigned bits = __float_as_uint(x + 0.0f);  // turns -0 into +0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Logits first .. first + 3, minus infinity from `limit` on. `first` is a multiple of 4; `aligned`: the row width too.
TURBO_DEVICE Vec<float, 4> load_logits(const float* row, int first, int limit, bool aligned) {
    if (aligned && first + 4 <= limit) return load_vec<float, 4>(row + first);
    Vec<float, 4> logits;
#pragma unroll
    for (int i = 0; i < 4; ++i) logits[i] = first + i < limit ? row[first + i] : -TURBO_INF;
    return logits;
}

// The greatest key of a row belongs to its greatest logit, the lowest index among equals; a NaN beats everything.
TURBO_DEVICE unsigned long long greedy_key(float logit, int index) {
    const unsigned long long key =
        static_cast<unsigned long long>(order_bits(logit)) << 32 | ~static_cast<unsigned>(index);
    return logit == logit ? key : ~0ull;
}
TURBO_DEVICE unsigned long long greedy_key_of_row(const float* row, int limit, bool aligned) {
    unsigned long long best = 0;
    for (int first = 4 * threadIdx.x; first < limit; first += 4 * blockDim.x) {
        const Vec<float, 4> logits = load_logits(row, first, limit, aligned);
#pragma unroll
        for (int i = 0; i < 4; ++i) best = max(best, greedy_key(logits[i], first + i));
    }
    return best;
}

// The token of a row's greatest key; -2 for a row that holds a NaN, or nothing above minus infinity.
TURBO_DEVICE int greedy_token(unsigned long long key) {
    const unsigned order = static_cast<unsigned>(key >> 32), order_of_minus_inf = 0x007fffffu;
    return order <= order_of_minus_inf || order == 0xffffffffu ? -2 : static_cast<int>(~static_cast<unsigned>(key));
}
