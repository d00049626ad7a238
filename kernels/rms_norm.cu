// rms_norm - scale every token's vector to unit root mean square.
//
// Math      out[t,i] = x[t,i] * weight[i] / sqrt(mean_i(x[t,i]^2) + eps)
// Shapes    out, x: (tokens, hidden) TYPE;  weight: (hidden,) TYPE;  eps: float, > 0, in units of x^2
// Variants  TYPE=float|half|bf16
// Launch    grid (tokens,)  block (threads,), a multiple of 32, <= 1024
// Staging   one sum a warp in 32 shared floats; x is read twice, the second time from L1
// Aliasing  out may be x.   Determinism  equal bits for an equal block size.
// Cost      reads tokens * hidden + hidden, writes tokens * hidden elements; bound by memory.
// Source    Zhang & Sennrich 2019, eps as in Llama; one rounding, at the end.  Oracle: testing/reference.py::rms_norm
#include "turbo.cuh"

template <int N>
TURBO_DEVICE void norm_row(TYPE* out, const TYPE* x, const TYPE* weight, int hidden, float eps, float* scratch) {
    float sum = 0.0f;
    for (int i = N * threadIdx.x; i < hidden; i += N * blockDim.x) {
        const Vec<TYPE, N> values = load_vec<TYPE, N>(x + i);
        sum = dot(values, values, sum);
    }
    const float scale = rsqrtf(block_sum(sum, scratch) / hidden + eps);
    for (int i = N * threadIdx.x; i < hidden; i += N * blockDim.x) {
        Vec<float, N> values = to_float(load_vec<TYPE, N>(x + i));
        const Vec<float, N> weights = to_float(load_vec<TYPE, N>(weight + i));
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] *= scale * weights[j];
        store_vec(out + i, from_float<TYPE>(values));
    }
}

extern "C" __global__ void rms_norm(TYPE* out, const TYPE* x, const TYPE* __restrict__ weight, int hidden, float eps) {
    __shared__ float scratch[32];
    const long long start = static_cast<long long>(blockIdx.x) * hidden;
    if (hidden % VEC<TYPE> == 0) norm_row<VEC<TYPE>>(out + start, x + start, weight, hidden, eps, scratch);
    else norm_row<1>(out + start, x + start, weight, hidden, eps, scratch);
}
TURBO_EXPORT(rms_norm)
