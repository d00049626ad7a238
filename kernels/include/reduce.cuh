// reduce - sums and maxima over a warp or a block, for float, int, unsigned, long long and unsigned long long.
//
// The order is the xor butterfly 16, 8, 4, 2, 1 on both devices, so results agree bit for bit. All 32 lanes of a warp
// must call; every lane gets the result. Block forms want a one-dimensional block of whole warps and 32 elements of
// shared scratch; they may be called back to back on the same scratch.
#pragma once

#if TURBO_CUDA

template <class T>
TURBO_DEVICE T turbo_greater(T a, T b) {
    return a > b ? a : b;
}
TURBO_DEVICE float turbo_greater(float a, float b) { return fmaxf(a, b); }

template <class T>
TURBO_DEVICE T turbo_lowest();
template <>
TURBO_DEVICE float turbo_lowest<float>() {
    return -TURBO_INF;
}
template <>
TURBO_DEVICE int turbo_lowest<int>() {
    return static_cast<int>(0x80000000u);
}
template <>
TURBO_DEVICE long long turbo_lowest<long long>() {
    return static_cast<long long>(0x8000000000000000ull);
}
template <>
TURBO_DEVICE unsigned turbo_lowest<unsigned>() {
    return 0u;
}
template <>
TURBO_DEVICE unsigned long long turbo_lowest<unsigned long long>() {
    return 0ull;
}

template <class T>
TURBO_DEVICE T warp_sum(T value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}
// A NaN loses against a number, as in fmaxf.
template <class T>
TURBO_DEVICE T warp_max(T value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        value = turbo_greater(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

// One value a warp through `scratch`, then every warp reads all of them; `rest` fills the lanes without a warp.
template <class T>
TURBO_DEVICE T turbo_across_warps(T value, T* scratch, T rest) {
    const int lane = threadIdx.x & 31, num_warps = blockDim.x >> 5;
    __syncthreads();  // an earlier call may still be reading the scratch
    if (lane == 0) scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    return lane < num_warps ? scratch[lane] : rest;
}
template <class T>
TURBO_DEVICE T block_sum(T value, T* scratch) {
    return warp_sum(turbo_across_warps(warp_sum(value), scratch, T(0)));
}
template <class T>
TURBO_DEVICE T block_max(T value, T* scratch) {
    return warp_max(turbo_across_warps(warp_max(value), scratch, turbo_lowest<T>()));
}

#else

template <class T>
TURBO_DEVICE T warp_sum(T value) {
    return turbo_reduce_warp(TURBO_SUM, value);
}
template <class T>
TURBO_DEVICE T warp_max(T value) {
    return turbo_reduce_warp(TURBO_MAX, value);
}
// One meeting of the block instead of three; the scratch is not needed.
template <class T>
TURBO_DEVICE T block_sum(T value, T*) {
    return turbo_reduce_block(TURBO_SUM, value);
}
template <class T>
TURBO_DEVICE T block_max(T value, T*) {
    return turbo_reduce_block(TURBO_MAX, value);
}

#endif
