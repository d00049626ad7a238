// slot_init - scatter the sampling state of newly admitted sequences into their slots.
//
// Math      temperature[slots[a]] = new_temperature[a], and so for every field; finished[slots[a]] = 0
// Shapes    slots: (entries,) int32, all different, -1 = unused entry;  new_*: (entries,), new_stop_ids: (entries,
//           max_stop_ids);  the fields: (num_slots,), stop_ids: (num_slots, max_stop_ids); temperature, top_p, min_p
//           float, seed uint64, the rest int32
// Variants  -
// Launch    grid (entries,)  block (32,); thread 0 writes the scalars, all write the stop ids
// Staging   nothing
// Cost      reads and writes max_stop_ids + 9 words an entry; bound by latency.
// Source    TurboMind's kSetup; addressed by slot.  Oracle: testing/reference.py::slot_init
#include "turbo.cuh"

extern "C" __global__ void
slot_init(float* __restrict__ temperature, int* __restrict__ top_k, float* __restrict__ top_p,
          float* __restrict__ min_p, unsigned long long* __restrict__ seed, int* __restrict__ stop_position,
          int* __restrict__ stop_ids, int* __restrict__ finished, const int* __restrict__ slots,
          const float* __restrict__ new_temperature, const int* __restrict__ new_top_k,
          const float* __restrict__ new_top_p, const float* __restrict__ new_min_p,
          const unsigned long long* __restrict__ new_seed, const int* __restrict__ new_stop_position,
          const int* __restrict__ new_stop_ids, int num_slots, int max_stop_ids) {
    const int entry = blockIdx.x, slot = slots[entry];
    const bool used = slot >= 0 && slot < num_slots;
    if (used && threadIdx.x == 0) {
        temperature[slot] = new_temperature[entry];
        top_k[slot] = new_top_k[entry];
        top_p[slot] = new_top_p[entry];
        min_p[slot] = new_min_p[entry];
        seed[slot] = new_seed[entry];
        stop_position[slot] = new_stop_position[entry];
        finished[slot] = 0;
    }
    if (used)
        for (int i = threadIdx.x; i < max_stop_ids; i += blockDim.x)
            stop_ids[static_cast<long long>(slot) * max_stop_ids + i] =
                new_stop_ids[static_cast<long long>(entry) * max_stop_ids + i];
}
TURBO_EXPORT(slot_init)
