// split_kv - how decode attention cuts a sequence among blocks, for the kernel that attends and the one that combines.
#pragma once

constexpr int SPLIT_GRAIN = 64;

// Tokens of one split: it depends on the sequence's own length and the number of splits, never on the other rows.
TURBO_DEVICE int split_length(int context, int num_splits) {
    const int even = (context + num_splits - 1) / num_splits;
    return max(SPLIT_GRAIN, (even + SPLIT_GRAIN - 1) / SPLIT_GRAIN * SPLIT_GRAIN);
}

// Tokens that row `row` attends to: none if it is padding or its sequence has ended.
TURBO_DEVICE int attended_length(const int* perm, const int* finished, const int* context_len, int row) {
    const int slot = perm[row];
    return slot < 0 || finished[slot] != 0 ? 0 : context_len[row];
}
