// toy_write - a "KV cache" of one number a token: a hash of the token id and its position, in the sequence's blocks.
#include "turbo.cuh"

extern "C" __global__ void toy_write(unsigned long long* __restrict__ cache, const int* __restrict__ token_ids,
                                     const int* __restrict__ positions, const int* __restrict__ token_rows,
                                     const int* __restrict__ perm, const int* __restrict__ finished,
                                     const int* __restrict__ last_tokens, const int* __restrict__ block_table,
                                     int tokens, int block_size, int max_blocks) {
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token < tokens) {
        const int row = token_rows[token], slot = row < 0 ? -1 : perm[row];
        if (slot >= 0 && finished[slot] == 0) {
            const int given = token_ids[token], id = given >= 0 ? given : last_tokens[-given - 1];
            const int position = positions[token], block = block_table[slot * max_blocks + position / block_size];
            unsigned long long hash = static_cast<unsigned long long>(id) * 0x9E3779B97F4A7C15ull + position;
            hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ull;
            cache[block * block_size + position % block_size] = hash ^ (hash >> 32);
        }
    }
}
TURBO_EXPORT(toy_write)
