// argmax - the most likely token of every row: greedy sampling.
//
// Math      tokens[r] = the lowest i < vocab_limit with the greatest logits[r,i];  -1 for a masked row, -2 for a row
//           that holds a NaN, or nothing above minus infinity, in its first vocab_limit logits
// Shapes    tokens, sample_slots: (rows,) int32;  logits: (rows, vocab) float;  finished: (slots,) int32
// Variants  -
// Masked    rows whose slot is -1 or has finished
// Launch    grid (rows,)  block (threads,), a multiple of 32, <= 1024; any number gives the same result
// Staging   one key a warp in shared memory
// Cost      reads rows * vocab_limit floats once; bound by memory.
// Source    keys of (ordered logit, inverted index), whose maximum needs no second pass.  Oracle:
//           testing/reference_sampling.py::argmax
#include "turbo.cuh"
#include "logits.cuh"

extern "C" __global__ void argmax(int* __restrict__ tokens, const float* __restrict__ logits,
                                  const int* __restrict__ sample_slots, const int* __restrict__ finished, int vocab,
                                  int vocab_limit) {
    __shared__ unsigned long long scratch[32];
    const int slot = sample_slots[blockIdx.x];
    const bool masked = slot < 0 || finished[slot] != 0;
    const float* const row = logits + static_cast<long long>(blockIdx.x) * vocab;
    const unsigned long long key = greedy_key_of_row(row, masked ? 0 : vocab_limit, vocab % 4 == 0);
    const unsigned long long best = block_max(key, scratch);
    if (threadIdx.x == 0) tokens[blockIdx.x] = masked ? -1 : greedy_token(best);
}
TURBO_EXPORT(argmax)
