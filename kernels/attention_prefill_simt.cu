// attention_prefill_simt - causal attention of a chunk of new tokens over the paged cache, without tensor cores.
//
// Math      out[t,h] = sum_s softmax_s(scale * q[t,h] . k[s,g]) v[s,g],  s <= position of t,  g = h / (Hq / Hkv)
// Shapes    as attention_prefill; also for float, and for any HEAD_DIM that is a multiple of 8
// Variants  TYPE=float HEAD_DIM=64|128 BLOCK_SIZE=16 LANES=8
// Variants  TYPE=float HEAD_DIM=192|256 BLOCK_SIZE=64 LANES=16
// Variants  TYPE=half|bf16 HEAD_DIM=40|200 BLOCK_SIZE=16 LANES=8
// Launch    grid (blocks, Hq, rows), any number of blocks: groups of LANES threads stride over the queries
//           block (threads,), <= 128, a multiple of max(LANES, 32), or 1 where LANES is 1
// Staging   nothing: the queries of a block read the same keys at the same time, from L1
// Aliasing  none.   Determinism  a query's result depends on its own tokens only.
// Cost      4*D operations a visible (query, key) pair and head, on the float units
// Source    online softmax (Milakov & Gimelshein 2018), rescaled once every KEYS keys.  LANES=1 suits a CPU.
//           Oracle: testing/reference_attention.py
#include "turbo.cuh"

constexpr int D = HEAD_DIM, WIDTH = VEC<TYPE>, KEYS = 8;
constexpr int CHUNKS = D / WIDTH, OWN = (CHUNKS + LANES - 1) / LANES;  // 16-byte chunks of a token; of one lane
constexpr float LOWEST = -1.0e30f;  // of a masked score: finite, so that differences are numbers
static_assert(D % WIDTH == 0, "HEAD_DIM");

using Floats = Vec<float, WIDTH>;

TURBO_DEVICE float group_sum(float value) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

extern "C" __global__ void __launch_bounds__(128, 2)
    attention_prefill_simt(TYPE* __restrict__ out, const TYPE* __restrict__ qkv, const TYPE* __restrict__ k_cache,
                           const TYPE* __restrict__ v_cache, const int* __restrict__ block_table,
                           const int* __restrict__ perm, const int* __restrict__ query_start,
                           const int* __restrict__ context_len, int first_row, int num_heads, int num_kv_heads,
                           int max_blocks, float scale) {
    const int row = first_row + static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
    const int kv_head = head / (num_heads / num_kv_heads), slot = perm[row];
    const int first_token = query_start[row], length = query_start[row + 1] - first_token;
    const int first_position = context_len[row] - length;
    const int lane = static_cast<int>(threadIdx.x) % LANES, groups = static_cast<int>(blockDim.x) / LANES;
    const int* blocks = block_table + static_cast<long long>(slot) * max_blocks;
    const float log2_scale = scale * 1.4426950408889634f;  // exp(scale * s) = exp2(log2_scale * s)

    // The whole block walks the same keys, up to the last that one of its queries sees.
    for (int query0 = static_cast<int>(blockIdx.x) * groups; slot >= 0 && query0 < length;
         query0 += static_cast<int>(gridDim.x) * groups) {
        const int query = query0 + static_cast<int>(threadIdx.x) / LANES, position = first_position + query;
        const int end = first_position + min(query0 + groups, length);
        const long long token = first_token + min(query, length - 1);
        const TYPE* from = qkv + (token * (num_heads + 2 * num_kv_heads) + head) * D;
        Floats q[OWN], sum[OWN] = {};
#pragma unroll
        for (int c = 0; c < OWN; ++c) {
            q[c] = Floats{};
            const int chunk = c * LANES + lane;
            if (chunk < CHUNKS) axpy(q[c], log2_scale, load_vec<TYPE, WIDTH>(from + chunk * WIDTH));
        }
        float maximum = LOWEST, total = 0.0f;
        for (int key0 = 0; key0 < end; key0 += KEYS) {
            long long offset[KEYS];
            float score[KEYS], highest = maximum;
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const int key = min(key0 + j, end - 1);
                const long long block = blocks[key / BLOCK_SIZE];
                offset[j] = ((block * num_kv_heads + kv_head) * BLOCK_SIZE + key % BLOCK_SIZE) * D;
                Floats products = {};
#pragma unroll
                for (int c = 0; c < OWN; ++c) {
                    const int chunk = c * LANES + lane;
                    if (chunk < CHUNKS)
                        multiply_add(products, q[c], load_vec<TYPE, WIDTH>(k_cache + offset[j] + chunk * WIDTH));
                }
                score[j] = group_sum(lane_sum(products));
                if (key0 + j <= position) highest = fmaxf(highest, score[j]);
            }
            const float rescale = exp2f(maximum - highest);
            maximum = highest;
            total *= rescale;
#pragma unroll
            for (int c = 0; c < OWN; ++c) {
                const Floats before = sum[c];
                sum[c] = Floats{};
                axpy(sum[c], rescale, before);
            }
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                if (key0 + j > position) continue;
                const float weight = exp2f(score[j] - highest);
                total += weight;
#pragma unroll
                for (int c = 0; c < OWN; ++c) {
                    const int chunk = c * LANES + lane;
                    if (chunk < CHUNKS)
                        axpy(sum[c], weight, load_vec<TYPE, WIDTH>(v_cache + offset[j] + chunk * WIDTH));
                }
            }
        }
        if (query >= length) continue;
        TYPE* to = out + (token * num_heads + head) * D;
#pragma unroll
        for (int c = 0; c < OWN; ++c) {
            const int chunk = c * LANES + lane;
            Floats result = {};
            axpy(result, 1.0f / total, sum[c]);
            if (chunk < CHUNKS) store_vec(to + chunk * WIDTH, from_float<TYPE>(result));
        }
    }
}
TURBO_EXPORT(attention_prefill_simt)
