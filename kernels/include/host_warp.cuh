// host_warp - barriers, shuffles, votes and reductions on the host: each call is one meeting of the threads named.
#pragma once

TURBO_DEVICE void __syncthreads() { turbo_barrier(TURBO_SYNC, 0); }
TURBO_DEVICE int __syncthreads_or(int predicate) { return turbo_barrier(TURBO_SYNC_OR, predicate); }
TURBO_DEVICE int __syncthreads_and(int predicate) { return turbo_barrier(TURBO_SYNC_AND, predicate); }
TURBO_DEVICE int __syncthreads_count(int predicate) { return turbo_barrier(TURBO_SYNC_COUNT, predicate); }
TURBO_DEVICE void __syncwarp(unsigned mask = 0xffffffffu) { turbo_warp_barrier(mask); }

// 4- and 8-byte operands travel as bits.
template <class T>
TURBO_DEVICE T turbo_shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    if constexpr (sizeof(T) == 4)
        return turbo_bit_cast<T>(turbo_shuffle32(mask, turbo_bit_cast<unsigned>(value), source));
    else return turbo_bit_cast<T>(turbo_shuffle64(mask, turbo_bit_cast<unsigned long long>(value), source));
}
// `width` cuts the warp into segments; a source outside the own segment gives the own value, as in CUDA.
template <class T>
TURBO_DEVICE T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const int lane = static_cast<int>(turbo_thread->lane);
    return turbo_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
TURBO_DEVICE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    const int lane = static_cast<int>(turbo_thread->lane), source = lane ^ lane_mask;
    return turbo_shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane);
}
template <class T>
TURBO_DEVICE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = static_cast<int>(turbo_thread->lane), source = lane - static_cast<int>(delta);
    return turbo_shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane);
}
template <class T>
TURBO_DEVICE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = static_cast<int>(turbo_thread->lane), source = lane + static_cast<int>(delta);
    return turbo_shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane);
}

TURBO_DEVICE unsigned __ballot_sync(unsigned mask, int predicate) { return turbo_ballot(mask, predicate); }
TURBO_DEVICE int __any_sync(unsigned mask, int predicate) { return turbo_ballot(mask, predicate) != 0; }
TURBO_DEVICE int __all_sync(unsigned mask, int predicate) { return turbo_ballot(mask, !predicate) == 0; }
template <class T>
TURBO_DEVICE unsigned __match_any_sync(unsigned mask, T value) {
    if constexpr (sizeof(T) == 4) return turbo_match(mask, turbo_bit_cast<unsigned>(value));
    else return turbo_match(mask, turbo_bit_cast<unsigned long long>(value));
}

// Which type a reduction works on.
template <class T>
constexpr TurboNumber TURBO_NUMBER = TURBO_FLOAT;
template <>
constexpr TurboNumber TURBO_NUMBER<int> = TURBO_INT;
template <>
constexpr TurboNumber TURBO_NUMBER<unsigned> = TURBO_UNSIGNED;
template <>
constexpr TurboNumber TURBO_NUMBER<long long> = TURBO_LONG;
template <>
constexpr TurboNumber TURBO_NUMBER<unsigned long long> = TURBO_UNSIGNED_LONG;

template <class T>
TURBO_DEVICE T turbo_reduce_warp(TurboReduction reduction, T value) {
    if constexpr (sizeof(T) == 4)
        return turbo_bit_cast<T>(turbo_warp_reduce32(reduction, TURBO_NUMBER<T>, turbo_bit_cast<unsigned>(value)));
    else
        return turbo_bit_cast<T>(
            turbo_warp_reduce64(reduction, TURBO_NUMBER<T>, turbo_bit_cast<unsigned long long>(value)));
}
template <class T>
TURBO_DEVICE T turbo_reduce_block(TurboReduction reduction, T value) {
    if constexpr (sizeof(T) == 4)
        return turbo_bit_cast<T>(turbo_block_reduce32(reduction, TURBO_NUMBER<T>, turbo_bit_cast<unsigned>(value)));
    else
        return turbo_bit_cast<T>(
            turbo_block_reduce64(reduction, TURBO_NUMBER<T>, turbo_bit_cast<unsigned long long>(value)));
}
