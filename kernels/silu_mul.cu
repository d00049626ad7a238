// silu_mul - the gated activation of the feed-forward block (SwiGLU).
//
// Math      out[t,i] = g / (1 + exp(-g)) * up[t,i],  g = gate[t,i]
// Shapes    out: (tokens, width) TYPE;  gate_up: (tokens, 2 * width) TYPE, gate in the first half of a row
// Variants  TYPE=float|half|bf16
// Launch    grid (tokens, chunks)  block (threads,), threads <= 1024; any numbers give the same result
// Staging   nothing
// Cost      reads 2 * tokens * width, writes tokens * width elements; bound by memory.
// Source    Shazeer 2020 (GLU variants); one rounding, at the end.  Oracle: testing/reference.py::silu_mul
#include "turbo.cuh"

template <int N>
TURBO_DEVICE void activate_row(TYPE* out, const TYPE* gate, const TYPE* up, int width) {
    for (int i = N * (blockIdx.y * blockDim.x + threadIdx.x); i < width; i += N * gridDim.y * blockDim.x) {
        Vec<float, N> values = to_float(load_vec<TYPE, N>(gate + i));
        const Vec<float, N> factors = to_float(load_vec<TYPE, N>(up + i));
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] = values[j] / (1.0f + expf(-values[j])) * factors[j];
        store_vec(out + i, from_float<TYPE>(values));
    }
}

extern "C" __global__ void silu_mul(TYPE* __restrict__ out, const TYPE* __restrict__ gate_up, int width) {
    TYPE* const row = out + static_cast<long long>(blockIdx.x) * width;
    const TYPE* const gate = gate_up + 2ll * blockIdx.x * width;
    if (width % VEC<TYPE> == 0) activate_row<VEC<TYPE>>(row, gate, gate + width, width);
    else activate_row<1>(row, gate, gate + width, width);
}
TURBO_EXPORT(silu_mul)
