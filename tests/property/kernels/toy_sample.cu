// toy_sample - the "next token": a hash of the request's seed and of all that its sequence has in the cache, in order.
#include "turbo.cuh"

extern "C" __global__ void toy_sample(int* __restrict__ sampled, const unsigned long long* __restrict__ cache,
                                      const int* __restrict__ sample_tokens, const int* __restrict__ sample_slots,
                                      const int* __restrict__ sample_positions, const int* __restrict__ positions,
                                      const int* __restrict__ finished, const unsigned long long* __restrict__ seed,
                                      const int* __restrict__ block_table, int rows, int vocab_size, int block_size,
                                      int max_blocks) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        const int slot = sample_slots[row];
        sampled[row] = -1;
        if (slot >= 0 && finished[slot] == 0) {
            unsigned long long hash = seed[slot];
            const int length = positions[sample_tokens[row]] + 1;  // what the row's last token may attend to
            for (int position = 0; position < length; ++position) {
                const int block = block_table[slot * max_blocks + position / block_size];
                hash = (hash ^ cache[block * block_size + position % block_size]) * 0x94D049BB133111EBull;
                hash ^= hash >> 31;
            }
            // One draw in 64 is "not a number". The position that the token is to get is part of the hash.
            hash = (hash + sample_positions[row]) * 0x9E3779B97F4A7C15ull;
            sampled[row] = hash >> 58 == 0 ? -2 : static_cast<int>((hash >> 32) % vocab_size);
        }
    }
}
TURBO_EXPORT(toy_sample)
