// attention_decode - attention of one new token a sequence over the paged cache, cut among blocks along the sequence.
//
// Math      partial[r,h,p] = (sum_s e_s v[s,g], max_s, sum_s e_s) over the tokens s of split p,
//           e_s = exp(scale * q[r,h] . k[s,g] - max_s),  g = h / (Hq / Hkv);  attention_combine merges the splits
// Shapes    partial: (rows * Hq * splits * (D + 2),) float, all sums first, then a (maximum in units of log 2, total)
//           pair each;  qkv: (rows, (Hq + 2 * Hkv) * D) TYPE, rotated queries first;  k_cache, v_cache: (NB, Hkv,
//           BLOCK_SIZE, D) TYPE;  block_table: (S, MB) int;  perm, context_len: (rows,) int;  finished: (S,) int
// Variants  TYPE=half|bf16 HEAD_DIM=128 BLOCK_SIZE=16 HEADS=1|4|8 LANES=16
// Variants  TYPE=bf16 HEAD_DIM=64 BLOCK_SIZE=64 HEADS=3|8 LANES=8
// Variants  TYPE=bf16 HEAD_DIM=80|256 BLOCK_SIZE=16 HEADS=4 LANES=32
// Variants  TYPE=float HEAD_DIM=64|128|256 BLOCK_SIZE=16 HEADS=4 LANES=32
// Launch    grid (splits, Hkv * ceil(Hq / Hkv / HEADS), rows)  block (threads,), a multiple of max(LANES, 32) or 1
//           shared threads / LANES * HEADS * (D + 2) * 4 bytes.  Splits without tokens exit and write nothing.
// Staging   LANES threads share a token's key, read once for HEADS query heads; each group of lanes keeps its own
//           running maximum, total and sum in registers, and the groups meet in shared memory at the end.
// Aliasing  none.   Determinism  a row's result depends on its own tokens, `splits` and the block size only.
// Cost      reads 2*D elements a token and KV head; bound by memory up to about 8 query heads a KV head
// Source    Flash-Decoding (Dao et al. 2023) with a block table (vLLM's PagedAttention).
//           Oracle: testing/reference_attention.py
#include "turbo.cuh"
#include "split_kv.cuh"

constexpr int D = HEAD_DIM, WIDTH = VEC<TYPE>;
constexpr int CHUNKS = D / WIDTH, OWN = (CHUNKS + LANES - 1) / LANES;  // 16-byte chunks of a token; of one lane
constexpr int KEYS = HEADS * OWN > 4 ? 2 : 4;                          // tokens of a group in flight
constexpr float LOWEST = -1.0e30f;  // no score yet: finite, so that differences are numbers
static_assert(D % WIDTH == 0, "HEAD_DIM");

using Chunk = Vec<TYPE, WIDTH>;
using Floats = Vec<float, WIDTH>;

TURBO_DEVICE float group_sum(float value) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// What a group of lanes knows of the tokens it has met.
struct Running {
    float maximum[HEADS], total[HEADS];
    Floats sum[HEADS][OWN];

    TURBO_DEVICE void meet(int h, const float (&score)[KEYS], const bool (&exists)[KEYS], const Chunk (&v)[KEYS][OWN]) {
        float highest = maximum[h];
#pragma unroll
        for (int j = 0; j < KEYS; ++j) highest = exists[j] ? fmaxf(highest, score[j]) : highest;
        const float rescale = exp2f(maximum[h] - highest);
        maximum[h] = highest;
        total[h] *= rescale;
#pragma unroll
        for (int c = 0; c < OWN; ++c) {
            const Floats before = sum[h][c];
            sum[h][c] = Floats{};
            axpy(sum[h][c], rescale, before);
        }
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            const float weight = exists[j] ? exp2f(score[j] - highest) : 0.0f;
            total[h] += weight;
#pragma unroll
            for (int c = 0; c < OWN; ++c) axpy(sum[h][c], weight, v[j][c]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(128, 2)
    attention_decode(float* __restrict__ partial, const TYPE* __restrict__ qkv, const TYPE* __restrict__ k_cache,
                     const TYPE* __restrict__ v_cache, const int* __restrict__ block_table,
                     const int* __restrict__ perm, const int* __restrict__ finished,
                     const int* __restrict__ context_len, int num_heads, int num_kv_heads, int max_blocks,
                     float scale) {
    TURBO_DYNAMIC_SHARED(float, shared);
    const int row = static_cast<int>(blockIdx.z), split = static_cast<int>(blockIdx.x);
    const int num_splits = static_cast<int>(gridDim.x), ratio = num_heads / num_kv_heads;
    const int passes = (ratio + HEADS - 1) / HEADS, kv_head = static_cast<int>(blockIdx.y) / passes;
    const int first_head = static_cast<int>(blockIdx.y) % passes * HEADS;  // within the KV head's group
    const int context = attended_length(perm, finished, context_len, row), length = split_length(context, num_splits);
    const int start = split * length, stop = min(context, start + length);
    if (start >= stop) return;  // the whole block

    const int lane = static_cast<int>(threadIdx.x) % LANES, group = static_cast<int>(threadIdx.x) / LANES;
    const int groups = static_cast<int>(blockDim.x) / LANES;
    const TYPE* q_row = qkv + static_cast<long long>(row) * (num_heads + 2 * num_kv_heads) * D;
    const int* blocks = block_table + static_cast<long long>(perm[row]) * max_blocks;
    const long long block_stride = static_cast<long long>(num_kv_heads) * BLOCK_SIZE * D;
    const TYPE* const k_head = k_cache + static_cast<long long>(kv_head) * BLOCK_SIZE * D;
    const TYPE* const v_head = v_cache + static_cast<long long>(kv_head) * BLOCK_SIZE * D;
    const float log2_scale = scale * 1.4426950408889634f;  // exp(scale * s) = exp2(log2_scale * s)

    Running running;
    Floats q[HEADS][OWN];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        running.maximum[h] = LOWEST, running.total[h] = 0.0f;
        const TYPE* from = q_row + (kv_head * ratio + min(first_head + h, ratio - 1)) * D;
#pragma unroll
        for (int c = 0; c < OWN; ++c) {
            running.sum[h][c] = Floats{}, q[h][c] = Floats{};
            const int chunk = c * LANES + lane;
            if (chunk < CHUNKS) axpy(q[h][c], log2_scale, load_vec<TYPE, WIDTH>(from + chunk * WIDTH));
        }
    }

    for (int key0 = start; key0 < stop; key0 += groups * KEYS) {
        Chunk k[KEYS][OWN], v[KEYS][OWN];
        bool exists[KEYS];
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            const int key = key0 + j * groups + group;
            exists[j] = key < stop;
            const int block = exists[j] ? blocks[key / BLOCK_SIZE] : 0;
            const long long offset = block * block_stride + key % BLOCK_SIZE * D;
#pragma unroll
            for (int c = 0; c < OWN; ++c) {
                const int chunk = c * LANES + lane;
                k[j][c] = Chunk{}, v[j][c] = Chunk{};  // the cache may hold anything beyond the last token
                if (exists[j] && chunk < CHUNKS) {
                    k[j][c] = load_vec_stream<TYPE, WIDTH>(k_head + offset + chunk * WIDTH);
                    v[j][c] = load_vec_stream<TYPE, WIDTH>(v_head + offset + chunk * WIDTH);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            float score[KEYS];
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                Floats products = {};
#pragma unroll
                for (int c = 0; c < OWN; ++c) multiply_add(products, q[h][c], k[j][c]);
                score[j] = group_sum(lane_sum(products));
            }
            running.meet(h, score, exists, v);
        }
    }

    float *const maxima = shared + groups * HEADS * D, *const totals = maxima + groups * HEADS;
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        const int place = group * HEADS + h;
        if (lane == 0) maxima[place] = running.maximum[h], totals[place] = running.total[h];
#pragma unroll
        for (int c = 0; c < OWN; ++c)
            if (c * LANES + lane < CHUNKS)
                store_vec(shared + place * D + (c * LANES + lane) * WIDTH, running.sum[h][c]);
    }
    __syncthreads();

    const int heads = min(HEADS, ratio - first_head);
    const long long pairs = static_cast<long long>(gridDim.z) * num_heads * num_splits * D;
    for (int i = static_cast<int>(threadIdx.x); i < heads * (D / 4); i += static_cast<int>(blockDim.x)) {
        const int h = i / (D / 4), d = i % (D / 4) * 4;
        float highest = LOWEST, total = 0.0f;
        for (int g = 0; g < groups; ++g) highest = fmaxf(highest, maxima[g * HEADS + h]);
        Vec<float, 4> sum = {};
        for (int g = 0; g < groups; ++g) {
            const float weight = exp2f(maxima[g * HEADS + h] - highest);
            total += weight * totals[g * HEADS + h];
            axpy(sum, weight, load_vec<float, 4>(shared + (g * HEADS + h) * D + d));
        }
        const long long head = static_cast<long long>(row) * num_heads + kv_head * ratio + first_head + h;
        const long long place = head * num_splits + split;
        store_vec(partial + place * D + d, sum);
        if (d == 0) store_vec(partial + pairs + place * 2, Vec<float, 2>{{highest, total}});
    }
}
TURBO_EXPORT(attention_decode)
