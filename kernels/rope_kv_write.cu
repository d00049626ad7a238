// rope_kv_write - rotate queries and keys to their positions; write keys and values into the paged cache.
//
// Math      (a, b) = (x[i], x[i + D/2]) of a head becomes (a cos - b sin, b cos + a sin), cos and sin of (position,
//           i); k_cache, v_cache[block_table[slot, position / BS], kv head, position % BS] = rotated key, value
// Shapes    qkv: (tokens, (Hq + 2 Hkv) D) TYPE, queries rotated in place, keys left as they are; k_cache, v_cache:
//           (num_blocks, Hkv, BS, D) TYPE;  cos_sin: (max_position, D) float, D/2 cosines then D/2 sines; positions,
//           token_rows: (tokens,) int32;  perm: (rows,) int32, slot of a row;  finished: (slots,) int32; block_table:
//           (slots, max_blocks) int32
// Variants  TYPE=float|half|bf16
// Masked    a token whose row or slot is -1, whose slot has finished, or whose position or block lies outside the
//           tables: nothing of it is written
// Launch    grid (tokens, chunks)  block (threads,), threads <= 1024; any numbers give the same result
// Staging   nothing
// Cost      reads (Hq + 2 Hkv) D, writes as many elements a token, and reads D floats; bound by memory.
// Source    Su et al. 2021 (RoPE), half-split as in GPT-NeoX; paged cache: Kwon et al. 2023.  Oracle:
//           testing/reference.py::rope_kv_write
#include "turbo.cuh"

struct Heads {
    int query, kv, dim, block_size;
};

// `key_target` and `value_target`: where the token's first KV head goes in the caches.
template <int N>
TURBO_DEVICE void write_token(TYPE* token, TYPE* key_target, TYPE* value_target, const float* cos_sin, Heads heads) {
    const int half_dim = heads.dim / 2, per_half = half_dim / N, per_head = heads.dim / N;
    const int rotations = (heads.query + heads.kv) * per_half, items = rotations + heads.kv * per_head;
    const long long head_stride = static_cast<long long>(heads.block_size) * heads.dim;  // of the caches
    for (int item = blockIdx.y * blockDim.x + threadIdx.x; item < items; item += gridDim.y * blockDim.x) {
        if (item < rotations) {
            const int head = item / per_half, i = item % per_half * N;
            TYPE* const source = token + head * heads.dim + i;
            TYPE* const target = head < heads.query ? source : key_target + (head - heads.query) * head_stride + i;
            const Vec<float, N> cosine = load_vec<float, N>(cos_sin + i),
                                sine = load_vec<float, N>(cos_sin + half_dim + i);
            Vec<float, N> low = to_float(load_vec<TYPE, N>(source)),
                          high = to_float(load_vec<TYPE, N>(source + half_dim));
#pragma unroll
            for (int j = 0; j < N; ++j) {
                const float a = low[j], b = high[j];
                low[j] = a * cosine[j] - b * sine[j];
                high[j] = b * cosine[j] + a * sine[j];
            }
            store_vec(target, from_float<TYPE>(low));
            store_vec(target + half_dim, from_float<TYPE>(high));
        } else {
            const int head = (item - rotations) / per_head, i = (item - rotations) % per_head * N;
            const TYPE* const values = token + (heads.query + heads.kv) * heads.dim;
            store_vec(value_target + head * head_stride + i, load_vec<TYPE, N>(values + head * heads.dim + i));
        }
    }
}

extern "C" __global__ void rope_kv_write(TYPE* qkv, TYPE* k_cache, TYPE* v_cache, const float* __restrict__ cos_sin,
                                         const int* __restrict__ positions, const int* __restrict__ token_rows,
                                         const int* __restrict__ perm, const int* __restrict__ finished,
                                         const int* __restrict__ block_table, int num_heads, int num_kv_heads,
                                         int head_dim, int block_size, int num_blocks, int max_blocks,
                                         int max_position) {
    const int row = token_rows[blockIdx.x], slot = row >= 0 ? perm[row] : -1, position = positions[blockIdx.x];
    int block = -1;
    if (slot >= 0 && finished[slot] == 0 && position >= 0 && position < max_position &&
        position / block_size < max_blocks)
        block = block_table[static_cast<long long>(slot) * max_blocks + position / block_size];
    if (block >= 0 && block < num_blocks) {
        const Heads heads = {num_heads, num_kv_heads, head_dim, block_size};
        TYPE* const token = qkv + static_cast<long long>(blockIdx.x) * (num_heads + 2 * num_kv_heads) * head_dim;
        const float* const angles = cos_sin + static_cast<long long>(position) * head_dim;
        const long long target =
            (static_cast<long long>(block) * num_kv_heads * block_size + position % block_size) * head_dim;
        if (head_dim / 2 % VEC<TYPE> == 0)
            write_token<VEC<TYPE>>(token, k_cache + target, v_cache + target, angles, heads);
        else write_token<1>(token, k_cache + target, v_cache + target, angles, heads);
    }
}
TURBO_EXPORT(rope_kv_write)
