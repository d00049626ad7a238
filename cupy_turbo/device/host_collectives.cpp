// host_collectives - barriers, shuffles, votes and reductions.
#include <type_traits>

#include "host_meeting.h"

namespace {

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

template <class Bits>
Bits reduce_block(Bits (&operand)[MAX_THREADS], TurboReduction reduction, TurboNumber type, Bits bits) {
    Machine& own = *machine;
    if (own.num_threads % 32) turbo_fail("reduces over a block that is not made of whole warps");
    operand[&self() - own.threads] = bits;
    meet_block(TURBO_SYNC_COUNT + 1 + 8 * reduction + type,
               [&] { own.barrier.reduced = reduce(reduction, type, operand, own.num_warps); });
    return static_cast<Bits>(own.barrier.reduced);
}

}  // namespace

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

}  // extern "C"
