// host_meeting - how threads meet: deposit an operand, wait, and the last to arrive computes for all.
//
// A lane that runs ahead may deposit for the next meeting while others have not yet read their result; so results have
// their own place, and are overwritten only when all have arrived again.
#pragma once
#include "host_fibers.h"

enum Collective : unsigned {
    SYNC_WARP,
    SHUFFLE_32,
    SHUFFLE_64,
    BALLOT,
    MATCH,
    LDMATRIX,
    LDMATRIX_TRANSPOSED,
    MMA,
    MMA_BF16,
    REDUCE,  // + 8 * reduction + type
};

inline Thread& self() { return *static_cast<Thread*>(turbo_thread); }

inline void check_tags(const Warp& warp, unsigned mask, unsigned long long tag) {
    for (unsigned lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1 && warp.tags[lane] != tag)
            turbo_fail("meets other lanes of its warp in a different collective, or with a different mask");
}

// Wait for the lanes of `mask`; the last one runs `compute(mask)`.
template <class Compute>
void meet(Warp& warp, unsigned collective, unsigned mask, Compute compute) {
    const Thread& thread = self();
    const unsigned bit = 1u << thread.lane;
    const unsigned long long tag = static_cast<unsigned long long>(mask) << 32 | collective;
    if (!(mask & bit)) turbo_fail("calls a warp collective with a mask that leaves it out");
    if (!warp.waiting) {
        warp.tag = tag;
        warp.is_mixed = false;
    } else if (warp.tag != tag) warp.is_mixed = true;
    warp.tags[thread.lane] = tag;
    warp.waiting |= bit;
    mask &= warp.lanes;
    if ((warp.waiting & mask) != mask) return machine->suspend();
    if (warp.is_mixed) check_tags(warp, mask, tag);
    compute(mask);
    warp.waiting &= ~mask;
    machine->release(warp, mask & ~bit);
}

inline void require_whole_warp(const Warp& warp) {
    if (warp.lanes != ALL_LANES) turbo_fail("calls a whole-warp operation in a warp of fewer than 32 threads");
}

// The last thread to arrive runs `compute` and goes on; the others are woken.
template <class Compute>
void meet_block(unsigned kind, Compute compute) {
    Barrier& barrier = machine->barrier;
    if (barrier.arrived == 0) barrier.kind = kind;
    else if (barrier.kind != kind) turbo_fail("reaches a barrier while other threads wait at one of another kind");
    if (++barrier.arrived < machine->num_threads) return machine->suspend();
    barrier.arrived = 0;
    compute();
    machine->release_all_but(self());
}
