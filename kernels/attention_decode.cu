// attention_decode - attention of one new token a sequence over the paged cache, cut among blocks along the sequence.
//
// Math      partial[r,h,p] = (sum_s e_s v[s,g], max_s, sum_s e_s) over the tokens s of split p,
//           e_s = exp(scale * q[r,h] . k[s,g] - max_s),  g = h / (Hq / Hkv);  attention_combine merges the splits
// Shapes    partial: (rows * Hq * splits * (D + 2),) float, all sums first, then a (maximum in units of log 2, total)
//           pair each;  qkv: (rows, (Hq + 2 * Hkv) * D) TYPE, rotated queries first;  k_cache, v_cache: (NB, Hkv,
//           BLOCK_SIZE, D) TYPE;  block_table: (S, MB) int;  perm, context_len: (rows,) int;  finished: (S,) int
// Variants  TYPE=half|bf16 HEAD_DIM=128 BLOCK_SIZE=16 HEADS=1|4 LANES=16 KEYS=4 STAGES=3
// Variants  TYPE=bf16 HEAD_DIM=64|80 BLOCK_SIZE=64 HEADS=8 LANES=16 KEYS=2 STAGES=4
// Variants  TYPE=float HEAD_DIM=64|256 BLOCK_SIZE=16 HEADS=4 LANES=32 KEYS=2 STAGES=4
// Launch    grid (splits, Hkv * ceil(Hq / Hkv / HEADS), rows)  block (threads,), a multiple of max(LANES, 32) or 1
//           shared max(threads / LANES * HEADS * (D + 2) * 4, STAGES * KEYS * OWN * 2 * 16 * threads where RING) bytes
//           Splits without tokens exit and write nothing.
// Staging   LANES threads share a token's key, read once for HEADS query heads; each group of lanes keeps its own
//           running maximum, total and sum in registers, and the groups meet in shared memory at the end. Where LANES
//           is not 1 (a CPU), keys and values pass through a ring that each thread owns: it copies 16 bytes ahead by
//           cp.async and reads back only its own, so no barrier is needed while tokens stream.
// Aliasing  none.   Determinism  a row's result depends on its own tokens, `splits` and the block size only.
// Cost      reads 2*D elements a token and KV head; bound by memory up to about 8 query heads a KV head
// Source    Flash-Decoding (Dao et al. 2023) with a block table (vLLM's PagedAttention).
//           Oracle: testing/reference_attention.py
#include "turbo.cuh"
#include "split_kv.cuh"

constexpr int D = HEAD_DIM, WIDTH = VEC<TYPE>;
constexpr int CHUNKS = D / WIDTH, OWN = (CHUNKS + LANES - 1) / LANES;  // 16-byte chunks of a token; of one lane
constexpr bool RING = LANES > 1;
constexpr int RESIDENT = HEADS * OWN > 4 ? 2 : 3;  // blocks of a processor that registers allow
constexpr float LOWEST = -1.0e30f;                 // no score yet: finite, so that differences are numbers
static_assert(D % WIDTH == 0, "HEAD_DIM");

using Chunk = Vec<TYPE, WIDTH>;
using Floats = Vec<float, WIDTH>;

TURBO_DEVICE float group_sum(float value) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// The group's tokens in order: `key`, then every `stride`th, KEYS a step.
struct TokenStream {
    const TYPE *k_head, *v_head;
    const int* blocks;
    long long block_stride;
    int stop, stride, lane;
    TYPE* slots;   // this thread's part of the ring
    int key;       // what is requested next
    int slot = 0;  // what is read next

    TURBO_DEVICE TYPE* at(int stage, int j, int c) const {
        return slots + ((stage * KEYS + j) * OWN + c) * 2 * 32 * WIDTH;  // the value's chunk follows the key's
    }
    TURBO_DEVICE long long offset(int token) const {
        return blocks[token / BLOCK_SIZE] * block_stride + token % BLOCK_SIZE * D + lane * WIDTH;
    }
    // Nothing is read past the last token: the cache may hold anything there.
    TURBO_DEVICE void request(int stage) {
#pragma unroll
        for (int j = 0; j < KEYS; ++j, key += stride) {
            const bool exists = key < stop;
            const long long from = exists ? offset(key) : 0;
#pragma unroll
            for (int c = 0; c < OWN; ++c) {
                const bool valid = exists && c * LANES + lane < CHUNKS;
                const long long place = valid ? from + c * LANES * WIDTH : 0;
                cp_async_16(at(stage, j, c), k_head + place, valid);
                cp_async_16(at(stage, j, c) + 32 * WIDTH, v_head + place, valid);
            }
        }
        cp_async_commit();
    }
    TURBO_DEVICE void start() {
        if constexpr (RING)
            for (int stage = 0; stage < STAGES - 1; ++stage) request(stage);
    }
    TURBO_DEVICE void read(Chunk (&chunks)[KEYS][OWN], bool is_value) const {
#pragma unroll
        for (int j = 0; j < KEYS; ++j)
#pragma unroll
            for (int c = 0; c < OWN; ++c) {
                if constexpr (RING) {
                    chunks[j][c] = load_vec<TYPE, WIDTH>(at(slot, j, c) + (is_value ? 32 * WIDTH : 0));
                } else {
                    const int token = key + j * stride;
                    chunks[j][c] = Chunk{};
                    if (token < stop)
                        chunks[j][c] = load_vec<TYPE, WIDTH>((is_value ? v_head : k_head) + offset(token) + c * WIDTH);
                }
            }
    }
    TURBO_DEVICE void arrive() const {
        if constexpr (RING) cp_async_wait<STAGES - 2>();
    }
    TURBO_DEVICE void advance() {
        if constexpr (RING) {
            request(slot == 0 ? STAGES - 1 : slot - 1);
            slot = slot == STAGES - 1 ? 0 : slot + 1;
        } else {
            key += KEYS * stride;
        }
    }
};

// What a group of lanes knows of the tokens it has met.
struct Running {
    float maximum[HEADS], total[HEADS];
    Floats sum[HEADS][OWN];

    // Tokens key, key + stride, ..., of which those before `stop` exist.
    TURBO_DEVICE void meet(int h, const float (&score)[KEYS], int key, int stride, int stop,
                           const Chunk (&v)[KEYS][OWN]) {
        float highest = maximum[h];
#pragma unroll
        for (int j = 0; j < KEYS; ++j) highest = key + j * stride < stop ? fmaxf(highest, score[j]) : highest;
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
            const float weight = key + j * stride < stop ? exp2f(score[j] - highest) : 0.0f;
            total[h] += weight;
#pragma unroll
            for (int c = 0; c < OWN; ++c) axpy(sum[h][c], weight, v[j][c]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(128, RESIDENT)
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
    const long long head_offset = static_cast<long long>(kv_head) * BLOCK_SIZE * D;
    TYPE* const slots =
        reinterpret_cast<TYPE*>(shared) + (threadIdx.x / 32 * STAGES * KEYS * OWN * 2 * 32 + threadIdx.x % 32) * WIDTH;
    TokenStream stream{k_cache + head_offset, v_cache + head_offset, blocks, block_stride, stop, groups, lane, slots,
                       start + group};
    stream.start();
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
        Chunk chunks[KEYS][OWN];
        float score[HEADS][KEYS];
        stream.arrive();
        stream.read(chunks, false);
#pragma unroll
        for (int h = 0; h < HEADS; ++h)
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                Floats products = {};
#pragma unroll
                for (int c = 0; c < OWN; ++c) multiply_add(products, q[h][c], chunks[j][c]);
                score[h][j] = group_sum(lane_sum(products));
            }
        stream.read(chunks, true);
        stream.advance();
#pragma unroll
        for (int h = 0; h < HEADS; ++h) running.meet(h, score[h], key0 + group, groups, stop, chunks);
    }
    if constexpr (RING) cp_async_wait<0>();
    __syncthreads();  // the groups' results take the place of the ring

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
