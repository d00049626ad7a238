// block_table_update - apply a step's deltas to the persistent block table.
//
// Math      block_table[slots[u], indices[u]] = blocks[u]; entries with a slot or an index outside the table, such as
//           slot -1 for an unused one, do nothing
// Shapes    block_table: (num_slots, max_blocks) int32;  slots, indices, blocks: (updates,) int32, no place named
//           twice
// Variants  -
// Launch    grid (ceil(updates / threads),)  block (threads,); a thread an update
// Staging   nothing
// Cost      reads 3, writes 1 integer an update; bound by latency.
// Source    Kwon et al. 2023 (PagedAttention); deltas instead of whole rows.  Oracle:
//           testing/reference.py::block_table_update
#include "turbo.cuh"

extern "C" __global__ void block_table_update(int* __restrict__ block_table, const int* __restrict__ slots,
                                              const int* __restrict__ indices, const int* __restrict__ blocks,
                                              int updates, int num_slots, int max_blocks) {
    const int update = blockIdx.x * blockDim.x + threadIdx.x;
    if (update < updates) {
        const int slot = slots[update], index = indices[update];
        if (slot >= 0 && slot < num_slots && index >= 0 && index < max_blocks)
            block_table[static_cast<long long>(slot) * max_blocks + index] = blocks[update];
    }
}
TURBO_EXPORT(block_table_update)
