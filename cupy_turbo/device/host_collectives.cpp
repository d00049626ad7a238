// host_collectives - meetings of a block or a warp: deposit an operand, and the last to arrive computes for all.
//
// A lane that runs ahead may deposit for the next meeting while others have not yet read their result; so results have
// their own place, and are overwritten only when all have arrived again.
#include <type_traits>

#include "host_fibers.h"

namespace {

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

Thread& self() { return *static_cast<Thread*>(turbo_thread); }

void check_tags(const Warp& warp, unsigned mask, unsigned long long tag) {
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

void require_whole_warp(const Warp& warp) {
    if (warp.lanes != ALL_LANES) turbo_fail("calls a whole-warp operation in a warp of fewer than 32 threads");
}

// Poison for a source that takes no part, as a GPU leaves it undefined.
template <class T>
T exchange(Warp& warp, T (&operand)[32], T (&result)[32], unsigned collective, unsigned mask, T value, int source) {
    const unsigned lane = self().lane;
    operand[lane] = value;
    warp.source[lane] = source & 31;
    meet(warp, collective, mask, [&](unsigned lanes) {
        if (lanes == ALL_LANES) {
            for (unsigned i = 0; i < 32; ++i) result[i] = operand[warp.source[i]];
            return;
        }
        for (unsigned i = 0; i < 32; ++i)
            if (lanes >> i & 1) result[i] = lanes >> warp.source[i] & 1 ? operand[warp.source[i]] : ~T(0);
    });
    return result[lane];
}

struct Sum {
    template <class T>
    T operator()(T a, T b) const {
        return a + b;
    }
    template <class T>
    static constexpr T REST = T(0);
};
struct Max {
    float operator()(float a, float b) const { return fmaxf(a, b); }
    template <class T>
    T operator()(T a, T b) const {
        return a > b ? a : b;
    }
    template <class T>
    static constexpr T REST = T(-1) < T(0) ? T(1ull << (8 * sizeof(T) - 1)) : T(0);
};
template <>
constexpr float Max::REST<float> = -__builtin_inff();

template <class T, class Combine>
T butterfly(const void* operand, Combine combine) {
    const T* values = static_cast<const T*>(operand);
    T partial[16];
    for (int i = 0; i < 16; ++i) partial[i] = combine(values[i], values[i + 16]);
    for (int i = 0; i < 8; ++i) partial[i] = combine(partial[i], partial[i + 8]);
    for (int i = 0; i < 4; ++i) partial[i] = combine(partial[i], partial[i + 4]);
    for (int i = 0; i < 2; ++i) partial[i] = combine(partial[i], partial[i + 2]);
    return combine(partial[0], partial[1]);
}
// Reduce `num_warps` times 32 operands as a GPU does: each warp, then the warps.
template <class T, class Combine, class Bits>
Bits reduce_as(const Bits* operand, unsigned num_warps) {
    T partial[32];
    for (unsigned w = 0; w < 32; ++w) partial[w] = Combine::template REST<T>;
    for (unsigned w = 0; w < num_warps; ++w) partial[w] = butterfly<T>(operand + 32 * w, Combine{});
    return turbo_bit_cast<Bits>(num_warps > 1 ? butterfly<T>(partial, Combine{}) : partial[0]);
}
template <class Bits>
Bits reduce(TurboReduction reduction, TurboNumber type, const Bits* operand, unsigned num_warps) {
    const bool is_sum = reduction == TURBO_SUM;
    if constexpr (sizeof(Bits) == sizeof(float)) {
        if (type == TURBO_FLOAT && is_sum) return reduce_as<float, Sum>(operand, num_warps);
        if (type == TURBO_FLOAT) return reduce_as<float, Max>(operand, num_warps);
    }
    if (is_sum) return reduce_as<Bits, Sum>(operand, num_warps);  // unsigned: sums wrap, as on a GPU
    if (type == TURBO_INT || type == TURBO_LONG) return reduce_as<std::make_signed_t<Bits>, Max>(operand, num_warps);
    return reduce_as<Bits, Max>(operand, num_warps);
}

template <class Bits>
Bits reduce_warp(Warp& warp, Bits (&operand)[32], Bits (&result)[32], TurboReduction reduction, TurboNumber type,
                 Bits bits) {
    const unsigned lane = self().lane;
    require_whole_warp(warp);
    operand[lane] = bits;
    meet(warp, REDUCE + 8 * reduction + type, ALL_LANES, [&](unsigned) {
        const Bits reduced = reduce(reduction, type, operand, 1);
        for (unsigned i = 0; i < 32; ++i) result[i] = reduced;
    });
    return result[lane];
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

template <class Bits>
Bits reduce_block(Bits (&operand)[MAX_THREADS], TurboReduction reduction, TurboNumber type, Bits bits) {
    Machine& own = *machine;
    if (own.num_threads % 32) turbo_fail("reduces over a block that is not made of whole warps");
    operand[&self() - own.threads] = bits;
    meet_block(TURBO_SYNC_COUNT + 1 + 8 * reduction + type,
               [&] { own.barrier.reduced = reduce(reduction, type, operand, own.num_warps); });
    return static_cast<Bits>(own.barrier.reduced);
}

void load_matrices(Warp& warp, unsigned count, bool transposed) {
    for (unsigned i = 0; i < count; ++i)
        for (unsigned row = 0; row < 8; ++row) {
            const void* source = warp.row[8 * i + row];
            if (!transposed) {
                memcpy(&warp.result[i][4 * row], source, 16);
                continue;
            }
            unsigned short elements[8];
            memcpy(elements, source, 16);
            // Element (row, g) goes to lane 4 g + row / 2, half row % 2.
            for (unsigned g = 0; g < 8; ++g)
                memcpy(reinterpret_cast<char*>(&warp.result[i][4 * g + row / 2]) + row % 2 * 2, &elements[g], 2);
        }
}

}  // namespace

#include "host_mma.h"

extern "C" {

int turbo_barrier(TurboBarrier kind, int predicate) {
    Barrier& barrier = machine->barrier;
    if (barrier.arrived == 0) barrier.count = 0;
    barrier.count += predicate != 0;
    meet_block(kind, [&] {
        const int all = barrier.count == static_cast<int>(machine->num_threads);
        barrier.result = kind == TURBO_SYNC_COUNT ? barrier.count : kind == TURBO_SYNC_AND ? all : barrier.count != 0;
    });
    return barrier.result;
}

unsigned turbo_warp_reduce32(TurboReduction reduction, TurboNumber type, unsigned bits) {
    Warp& warp = *self().warp;
    return reduce_warp(warp, warp.operand[0], warp.result[0], reduction, type, bits);
}
unsigned long long turbo_warp_reduce64(TurboReduction reduction, TurboNumber type, unsigned long long bits) {
    Warp& warp = *self().warp;
    return reduce_warp(warp, warp.operand64, warp.result64, reduction, type, bits);
}
unsigned turbo_block_reduce32(TurboReduction reduction, TurboNumber type, unsigned bits) {
    return reduce_block(machine->reduce_operand, reduction, type, bits);
}
unsigned long long turbo_block_reduce64(TurboReduction reduction, TurboNumber type, unsigned long long bits) {
    return reduce_block(machine->reduce_operand64, reduction, type, bits);
}

void turbo_warp_barrier(unsigned mask) {
    meet(*self().warp, SYNC_WARP, mask, [](unsigned) {});
}

unsigned turbo_shuffle32(unsigned mask, unsigned value, int source) {
    Warp& warp = *self().warp;
    return exchange(warp, warp.operand[0], warp.result[0], SHUFFLE_32, mask, value, source);
}
unsigned long long turbo_shuffle64(unsigned mask, unsigned long long value, int source) {
    Warp& warp = *self().warp;
    return exchange(warp, warp.operand64, warp.result64, SHUFFLE_64, mask, value, source);
}

unsigned turbo_ballot(unsigned mask, int predicate) {
    Warp& warp = *self().warp;
    const unsigned lane = self().lane, bit = 1u << lane;
    warp.predicates = predicate ? warp.predicates | bit : warp.predicates & ~bit;
    meet(warp, BALLOT, mask, [&](unsigned lanes) {
        for (unsigned i = 0; i < 32; ++i)
            if (lanes >> i & 1) warp.result[0][i] = warp.predicates & lanes;
    });
    return warp.result[0][lane];
}

unsigned turbo_match(unsigned mask, unsigned long long value) {
    Warp& warp = *self().warp;
    const unsigned lane = self().lane;
    warp.operand64[lane] = value;
    meet(warp, MATCH, mask, [&](unsigned lanes) {
        for (unsigned i = 0; i < 32; ++i) {
            if (!(lanes >> i & 1)) continue;
            warp.result[0][i] = 0;
            for (unsigned j = 0; j < 32; ++j)
                if (lanes >> j & 1 && warp.operand64[i] == warp.operand64[j]) warp.result[0][i] |= 1u << j;
        }
    });
    return warp.result[0][lane];
}

void turbo_ldmatrix(unsigned* registers, const void* row, int count, bool transposed) {
    Warp& warp = *self().warp;
    const unsigned lane = self().lane, matrices = static_cast<unsigned>(count);
    require_whole_warp(warp);
    if (lane < 8 * matrices) {
        if (reinterpret_cast<uintptr_t>(row) % 16) turbo_fail("gives ldmatrix a row that is not 16-byte aligned");
        if (!machine->is_shared(row, 16)) turbo_fail("gives ldmatrix a row outside the block's shared memory");
    }
    warp.row[lane] = row;
    meet(warp, (transposed ? LDMATRIX_TRANSPOSED : LDMATRIX) + (matrices << 8), ALL_LANES,
         [&](unsigned) { load_matrices(warp, matrices, transposed); });
    for (unsigned i = 0; i < matrices; ++i) registers[i] = warp.result[i][lane];
}

void turbo_mma(float* d, const unsigned* a, const unsigned* b, bool is_bf16) {
    Warp& warp = *self().warp;
    const unsigned lane = self().lane;
    require_whole_warp(warp);
    for (int i = 0; i < 4; ++i) warp.operand[i][lane] = a[i];
    for (int i = 0; i < 2; ++i) warp.operand[4 + i][lane] = b[i];
    for (int i = 0; i < 4; ++i) warp.operand[6 + i][lane] = turbo_bit_cast<unsigned>(d[i]);
    meet(warp, is_bf16 ? MMA_BF16 : MMA, ALL_LANES, [&](unsigned) {
        if (is_bf16) multiply<bf16>(warp);
        else multiply<half>(warp);
    });
    for (int i = 0; i < 4; ++i) d[i] = turbo_bit_cast<float>(warp.result[i][lane]);
}

void turbo_cp_async(void* shared, const void* global, bool valid) {
    if ((reinterpret_cast<uintptr_t>(shared) | (valid ? reinterpret_cast<uintptr_t>(global) : 0)) % 16)
        turbo_fail("gives cp_async_16 an address that is not 16-byte aligned");
    if (!machine->is_shared(shared, 16))
        turbo_fail("gives cp_async_16 a destination outside the block's shared memory");
    PendingCopies& pending = machine->copies();
    if (pending.last - pending.first == PendingCopies::CAPACITY) pending.run_oldest();
    pending.copies[pending.last++ % PendingCopies::CAPACITY] = {shared, valid ? global : nullptr, pending.group};
}
void turbo_cp_async_commit() { ++machine->copies().group; }
void turbo_cp_async_wait(int allowed) {
    PendingCopies& pending = machine->copies();
    // Unsigned distance, because group numbers may wrap.
    while (pending.first != pending.last) {
        const unsigned age = pending.group - pending.copies[pending.first % PendingCopies::CAPACITY].group;
        if (age <= static_cast<unsigned>(allowed)) break;
        pending.run_oldest();
    }
}

}  // extern "C"
