// attention_prefill - causal attention of a chunk of new tokens over the paged cache, on tensor cores.
//
// Math      out[t,h] = sum_s softmax_s(scale * q[t,h] . k[s,g]) v[s,g],  s <= position of t,  g = h / (Hq / Hkv)
// Shapes    out: (T, Hq * D) TYPE;  qkv: (T, (Hq + 2 * Hkv) * D) TYPE, rotated queries first;
//           k_cache, v_cache: (NB, Hkv, BLOCK_SIZE, D) TYPE;  block_table: (S, MB) int;  perm, context_len: (R,) int;
//           query_start: (R + 1,) int.  D = HEAD_DIM, a multiple of 16
// Variants  TYPE=half|bf16 HEAD_DIM=64|128 BLOCK_SIZE=16
// Variants  TYPE=bf16 HEAD_DIM=32|80|256 BLOCK_SIZE=64
// Launch    grid (ceil(max_query_len / 64), Hq, rows)  block (128,)
//           shared 2 * (D + 8) * (64 + 4 * KEYS) bytes, KEYS = 64, or 32 where D > 128
// Staging   64 queries stay in shared memory, tiles of KEYS keys and values pass through two stages of cp.async;
//           rows are padded by 16 bytes, so that ldmatrix meets no bank twice. Scores and sums stay in registers.
// Aliasing  none.   Determinism  a row's result depends on its own tokens only, not on the batch.
// Cost      4*D operations a visible (query, key) pair and head; masked tiles are skipped, only diagonal ones compare
// Source    FlashAttention-2 (Dao 2023) with a block table (vLLM's PagedAttention); row `first_row + z` has its
//           L = query_start[+1] - query_start queries at positions context_len - L and up.
//           Oracle: testing/reference_attention.py
#include "turbo.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, QUERIES = 16 * WARPS;
constexpr int KEYS = D > 128 ? 32 : 64;
constexpr int PITCH = D + 8;        // elements of a row in shared memory
constexpr int CHUNKS = D / 8;       // 16-byte chunks of a row
constexpr int TILE = KEYS * PITCH;  // elements of a tile of keys or values
constexpr int KEY_TILES = KEYS / 8, DIM_TILES = D / 8;
constexpr float LOWEST = -1.0e30f;  // of a masked score: finite, so that differences are numbers
static_assert(D % 16 == 0, "HEAD_DIM");

// Keys key0 .. key0 + KEYS of one head, zeros from `context` on: the cache may hold anything there.
TURBO_DEVICE void load_keys(TYPE* keys, TYPE* values, const TYPE* k_cache, const TYPE* v_cache, const int* blocks,
                            long long block_stride, int key0, int context) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < KEYS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, key = key0 + row;
        const bool visible = key < context;
        const long long block = visible ? blocks[key / BLOCK_SIZE] : 0;
        const long long offset = block * block_stride + key % BLOCK_SIZE * D + chunk * 8;
        cp_async_16(keys + row * PITCH + chunk * 8, k_cache + offset, visible);
        cp_async_16(values + row * PITCH + chunk * 8, v_cache + offset, visible);
    }
    cp_async_commit();
}

// s = q . k of this warp's 16 queries and KEYS keys, in mma's layout.
TURBO_DEVICE void multiply_keys(float (&s)[KEY_TILES][4], const TYPE* queries, const TYPE* keys, int lane) {
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        unsigned a[4];
        ldmatrix_x4(a, queries + lane % 16 * PITCH + d + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < KEY_TILES; j += 2) {
            unsigned r[4];
            ldmatrix_x4(r, keys + (j * 8 + lane / 16 * 8 + lane % 8) * PITCH + d + lane / 8 % 2 * 8);
            const unsigned low[2] = {r[0], r[1]}, high[2] = {r[2], r[3]};
            mma_m16n8k16<TYPE>(s[j], a, low);
            mma_m16n8k16<TYPE>(s[j + 1], a, high);
        }
    }
}

// sums += p . v: the scores' layout is that of a row operand, two tiles of eight keys a step.
TURBO_DEVICE void multiply_values(float (&sums)[DIM_TILES][4], const float (&p)[KEY_TILES][4], const TYPE* values,
                                  int lane) {
#pragma unroll
    for (int j = 0; j < KEY_TILES; j += 2) {
        const unsigned a[4] = {pack<TYPE>(p[j][0], p[j][1]), pack<TYPE>(p[j][2], p[j][3]),
                               pack<TYPE>(p[j + 1][0], p[j + 1][1]), pack<TYPE>(p[j + 1][2], p[j + 1][3])};
#pragma unroll
        for (int d = 0; d < DIM_TILES; d += 2) {
            unsigned r[4];
            ldmatrix_x4_trans(r, values + (j * 8 + lane % 16) * PITCH + d * 8 + lane / 16 * 8);
            const unsigned low[2] = {r[0], r[1]}, high[2] = {r[2], r[3]};
            mma_m16n8k16<TYPE>(sums[d], a, low);
            mma_m16n8k16<TYPE>(sums[d + 1], a, high);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention_prefill(TYPE* __restrict__ out, const TYPE* __restrict__ qkv, const TYPE* __restrict__ k_cache,
                      const TYPE* __restrict__ v_cache, const int* __restrict__ block_table,
                      const int* __restrict__ perm, const int* __restrict__ query_start,
                      const int* __restrict__ context_len, int first_row, int num_heads, int num_kv_heads,
                      int max_blocks, float scale) {
    TURBO_DYNAMIC_SHARED(TYPE, shared);
    TYPE *const query_tile = shared, *const stages = shared + QUERIES * PITCH;
    const int row = first_row + static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
    const int kv_head = head / (num_heads / num_kv_heads), slot = perm[row], context = context_len[row];
    const int first_token = query_start[row], length = query_start[row + 1] - first_token;
    const int query0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest tiles start first
    if (slot < 0 || query0 >= length) return;                                   // the whole block

    const int* blocks = block_table + static_cast<long long>(slot) * max_blocks;
    const long long head_offset = static_cast<long long>(kv_head) * BLOCK_SIZE * D;
    const long long block_stride = static_cast<long long>(num_kv_heads) * BLOCK_SIZE * D;
    const TYPE *k_head = k_cache + head_offset, *v_head = v_cache + head_offset;
    const int position0 = context - length + query0;    // of the tile's first query
    const int end = min(context, position0 + QUERIES);  // keys that some query of the tile sees

    const long long token_stride = static_cast<long long>(num_heads + 2 * num_kv_heads) * D;
    for (int i = static_cast<int>(threadIdx.x); i < QUERIES * CHUNKS; i += THREADS) {
        const int query = query0 + i / CHUNKS, chunk = i % CHUNKS;
        const bool exists = query < length;
        const TYPE* from = qkv + (exists ? (first_token + query) * token_stride + head * D + chunk * 8 : 0);
        cp_async_16(query_tile + i / CHUNKS * PITCH + chunk * 8, from, exists);
    }
    load_keys(stages, stages + TILE, k_head, v_head, blocks, block_stride, 0, end);

    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const float log2_scale = scale * 1.4426950408889634f;  // exp(scale * s) = exp2(log2_scale * s)
    // Two rows of the warp's 16 belong to a thread: lane / 4 and lane / 4 + 8.
    float sums[DIM_TILES][4] = {}, maximum[2] = {LOWEST, LOWEST}, total[2] = {0.0f, 0.0f};
    for (int key0 = 0, stage = 0; key0 < end; key0 += KEYS, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();  // this tile has arrived; everybody is done with the other stage, which is refilled now
        const TYPE *keys = stages + stage * 2 * TILE, *values = keys + TILE;
        TYPE* next = stages + (stage ^ 1) * 2 * TILE;
        if (key0 + KEYS < end) load_keys(next, next + TILE, k_head, v_head, blocks, block_stride, key0 + KEYS, end);

        float s[KEY_TILES][4] = {};
        multiply_keys(s, query_tile + warp * 16 * PITCH, keys, lane);
        if (key0 + KEYS - 1 > position0 + warp * 16) {  // some query of this warp must not see some key of this tile
#pragma unroll
            for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int key = key0 + j * 8 + lane % 4 * 2 + e % 2;
                    if (key > position0 + warp * 16 + lane / 4 + e / 2 * 8) s[j][e] = LOWEST;
                }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float highest = maximum[h];
#pragma unroll
            for (int j = 0; j < KEY_TILES; ++j) highest = fmaxf(highest, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
            const float rescale = exp2f((maximum[h] - highest) * log2_scale), offset = highest * log2_scale;
            maximum[h] = highest;
            total[h] *= rescale;
#pragma unroll
            for (int d = 0; d < DIM_TILES; ++d) sums[d][2 * h] *= rescale, sums[d][2 * h + 1] *= rescale;
#pragma unroll
            for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; ++e) {
                    s[j][e] = exp2f(fmaf(s[j][e], log2_scale, -offset));
                    total[h] += s[j][e];
                }
        }
        multiply_values(sums, s, values, lane);
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
        total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
        total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
        const int query = query0 + warp * 16 + h * 8 + lane / 4;
        if (query >= length) continue;
        TYPE* to = out + (static_cast<long long>(first_token + query) * num_heads + head) * D + lane % 4 * 2;
        const float inverse = 1.0f / total[h];
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d)
            store_vec(to + d * 8, Vec<TYPE, 2>{{from_float<TYPE>(sums[d][2 * h] * inverse),
                                                from_float<TYPE>(sums[d][2 * h + 1] * inverse)}});
    }
}
TURBO_EXPORT(attention_prefill)
