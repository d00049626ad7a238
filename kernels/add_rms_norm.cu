// add_rms_norm - add a block's output to the residual, then scale the sum to unit root mean square.
//
// Math      residual[t,i] += x[t,i], rounded to TYPE;  out[t,i] = residual[t,i] * weight[i] / sqrt(mean_i(residual^2)
//           + eps)
// Shapes    out, residual, x: (tokens, hidden) TYPE;  weight: (hidden,) TYPE;  eps: float, > 0, in units of
//           residual^2
// Variants  TYPE=float|half|bf16
// Launch    grid (tokens,)  block (threads,), a multiple of 32, <= 1024
// Staging   one sum a warp in 32 shared floats; a thread reads back the residual that it wrote, from L1
// Aliasing  out may be x; neither may be residual.   Determinism  equal bits for an equal block size.
// Cost      reads 2 * tokens * hidden + hidden, writes 2 * tokens * hidden elements; bound by memory.
// Source    Zhang & Sennrich 2019, eps as in Llama; fused as in TurboMind.  Oracle:
//           testing/reference.py::add_rms_norm
#include "turbo.cuh"

template <int N>
TURBO_DEVICE void add_norm_row(TYPE* out, TYPE* residual, const TYPE* x, const TYPE* weight, int hidden, float eps,
                               float* scratch) {
    float sum = 0.0f;
    for (int i = N * threadIdx.x; i < hidden; i += N * blockDim.x) {
        Vec<float, N> values = to_float(load_vec<TYPE, N>(residual + i));
        const Vec<float, N> added = to_float(load_vec<TYPE, N>(x + i));
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] += added[j];
        const Vec<TYPE, N> rounded = from_float<TYPE>(values);
        store_vec(residual + i, rounded);
        sum = dot(rounded, rounded, sum);
    }
    const float scale = rsqrtf(block_sum(sum, scratch) / hidden + eps);
    for (int i = N * threadIdx.x; i < hidden; i += N * blockDim.x) {
        Vec<float, N> values = to_float(load_vec<TYPE, N>(residual + i));
        const Vec<float, N> weights = to_float(load_vec<TYPE, N>(weight + i));
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] *= scale * weights[j];
        store_vec(out + i, from_float<TYPE>(values));
    }
}

extern "C" __global__ void add_rms_norm(TYPE* out, TYPE* residual, const TYPE* x, const TYPE* __restrict__ weight,
                                        int hidden, float eps) {
    __shared__ float scratch[32];
    const long long start = static_cast<long long>(blockIdx.x) * hidden;
    if (hidden % VEC<TYPE> == 0)
        add_norm_row<VEC<TYPE>>(out + start, residual + start, x + start, weight, hidden, eps, scratch);
    else add_norm_row<1>(out + start, residual + start, x + start, weight, hidden, eps, scratch);
}
TURBO_EXPORT(add_rms_norm)
