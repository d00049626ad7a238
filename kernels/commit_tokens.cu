// commit_tokens - keep every row's sampled token for the next step, and decide which sequences end with it.
//
// Math      token -2 (no finite logits): status 4.  Else last_tokens[slot] = token, and the status is 2 if the token
//           is one of the slot's stop ids, 3 if sample_position + 1 >= stop_position, 1 otherwise. A status above 1
//           is written to finished[slot]. Masked rows: token -1, status 0, no state touched.
// Shapes    result_tokens, result_status, tokens, sample_slots, sample_positions (index the token gets in its
//           sequence): (rows,) int32;  last_tokens, finished, stop_position (tokens the sequence may have): (slots,)
//           int32; stop_ids: (slots, max_stop_ids) int32, unused entries -1
// Variants  -
// Masked    rows whose slot is -1 or has finished
// Launch    grid (ceil(rows / threads),)  block (threads,); a thread a row
// Staging   nothing
// Cost      reads max_stop_ids + 7 integers a row; bound by latency.
// Source    TurboMind's StopCriteria, and its kUnprep.  Oracle: testing/reference_sampling.py::commit_tokens
#include "turbo.cuh"

extern "C" __global__ void commit_tokens(int* __restrict__ result_tokens, int* __restrict__ result_status,
                                         const int* __restrict__ tokens, const int* __restrict__ sample_slots,
                                         const int* __restrict__ sample_positions, int* __restrict__ last_tokens,
                                         int* __restrict__ finished, const int* __restrict__ stop_position,
                                         const int* __restrict__ stop_ids, int rows, int max_stop_ids) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        const int slot = sample_slots[row];
        int token = -1, status = 0;
        if (slot >= 0 && finished[slot] == 0) {
            token = tokens[row];
            status = token < 0 ? 4 : sample_positions[row] + 1 >= stop_position[slot] ? 3 : 1;
            for (int i = 0; i < max_stop_ids; ++i)
                if (token >= 0 && stop_ids[static_cast<long long>(slot) * max_stop_ids + i] == token) status = 2;
            if (token >= 0) last_tokens[slot] = token;
            if (status > 1) finished[slot] = status;
        }
        result_tokens[row] = token;
        result_status[row] = status;
    }
}
TURBO_EXPORT(commit_tokens)
