// attention_combine - merge what attention_decode found in the splits of each sequence.
//
// Math      out[r,h] = sum_p w_p sum_p / sum_p w_p total_p,  w_p = 2^(maximum_p - max_p maximum_p)
// Shapes    out: (rows, Hq * HEAD_DIM) TYPE; partial: (rows * Hq * splits * (HEAD_DIM + 2),) float, of attention_decode
//           writes it;  perm, context_len: (rows,) int;  finished: (S,) int
// Variants  TYPE=float|half|bf16 HEAD_DIM=128
// Variants  TYPE=bf16 HEAD_DIM=40|256
// Launch    grid (Hq, rows)  block (threads,), any number; HEAD_DIM / 4 have work
// Staging   nothing: a thread reads four dimensions of every split in use
// Aliasing  none.   Determinism  splits are added in order; bitwise equal for any launch.
// Cost      reads splits in use * (HEAD_DIM + 2) floats a row and head.  A masked row (padding, finished) gets zeros.
// Source    Flash-Decoding (Dao et al. 2023).  Oracle: testing/reference_attention.py
#include "turbo.cuh"
#include "split_kv.cuh"

extern "C" __global__ void attention_combine(TYPE* __restrict__ out, const float* __restrict__ partial,
                                             const int* __restrict__ perm, const int* __restrict__ finished,
                                             const int* __restrict__ context_len, int num_splits) {
    constexpr int D = HEAD_DIM;
    const int row = static_cast<int>(blockIdx.y), num_heads = static_cast<int>(gridDim.x);
    const int context = attended_length(perm, finished, context_len, row), length = split_length(context, num_splits);
    const int used = (context + length - 1) / length;
    const long long head = static_cast<long long>(row) * num_heads + static_cast<int>(blockIdx.x);
    const float* sums = partial + head * num_splits * D;
    const float* pairs =
        partial + static_cast<long long>(gridDim.y) * num_heads * num_splits * D + head * num_splits * 2;

    float highest = -TURBO_INF;
    for (int p = 0; p < used; ++p) highest = fmaxf(highest, pairs[2 * p]);
    for (int d = static_cast<int>(threadIdx.x) * 4; d < D; d += static_cast<int>(blockDim.x) * 4) {
        Vec<float, 4> sum = {}, result = {};
        float total = 0.0f;
        for (int p = 0; p < used; ++p) {
            const float weight = exp2f(pairs[2 * p] - highest);
            total += weight * pairs[2 * p + 1];
            axpy(sum, weight, load_vec<float, 4>(sums + static_cast<long long>(p) * D + d));
        }
        if (used > 0) axpy(result, 1.0f / total, sum);
        store_vec(out + head * D + d, from_float<TYPE>(result));
    }
}
TURBO_EXPORT(attention_combine)
