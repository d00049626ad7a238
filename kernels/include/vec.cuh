// vec - N elements that travel in one memory instruction (16 bytes when N = VEC<T>).
//
// Addresses must be aligned to min(16, N * sizeof(T)) bytes; the host device aborts the launch otherwise, as a GPU does.
#pragma once

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
    T v[N];
    TURBO_DEVICE T& operator[](int i) { return v[i]; }
    TURBO_DEVICE const T& operator[](int i) const { return v[i]; }
};

// Elements of T in 16 bytes.
template <class T>
constexpr int VEC = static_cast<int>(16 / sizeof(T));

#if TURBO_CUDA

template <int BYTES>
struct TurboWord;
template <>
struct TurboWord<16> {
    using type = uint4;
};
template <>
struct TurboWord<8> {
    using type = uint2;
};
template <>
struct TurboWord<4> {
    using type = unsigned;
};
template <>
struct TurboWord<2> {
    using type = unsigned short;
};

// Read once: past the L1 cache, through the read-only path. Volatile, so that a batch of loads stays a batch: the
// compiler would otherwise sink each load to its use and leave one in flight.
TURBO_DEVICE uint4 turbo_load_stream(const uint4* p) {
    uint4 r;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(p));
    return r;
}
TURBO_DEVICE uint2 turbo_load_stream(const uint2* p) {
    uint2 r;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
    return r;
}
TURBO_DEVICE unsigned turbo_load_stream(const unsigned* p) {
    unsigned r;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(r) : "l"(p));
    return r;
}
TURBO_DEVICE unsigned short turbo_load_stream(const unsigned short* p) {
    unsigned short r;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(r) : "l"(p));
    return r;
}

template <class T, int N>
TURBO_DEVICE Vec<T, N> load_vec(const T* p) {
    constexpr int BYTES = sizeof(T) * N < 16 ? sizeof(T) * N : 16;
    using Word = typename TurboWord<BYTES>::type;
    Vec<T, N> r;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(r)) / BYTES; ++i)
        reinterpret_cast<Word*>(&r)[i] = reinterpret_cast<const Word*>(p)[i];
    return r;
}
template <class T, int N>
TURBO_DEVICE Vec<T, N> load_vec_stream(const T* p) {
    constexpr int BYTES = sizeof(T) * N < 16 ? sizeof(T) * N : 16;
    using Word = typename TurboWord<BYTES>::type;
    Vec<T, N> r;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(r)) / BYTES; ++i)
        reinterpret_cast<Word*>(&r)[i] = turbo_load_stream(reinterpret_cast<const Word*>(p) + i);
    return r;
}
template <class T, int N>
TURBO_DEVICE void store_vec(T* p, Vec<T, N> value) {
    constexpr int BYTES = sizeof(T) * N < 16 ? sizeof(T) * N : 16;
    using Word = typename TurboWord<BYTES>::type;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(value)) / BYTES; ++i)
        reinterpret_cast<Word*>(p)[i] = reinterpret_cast<const Word*>(&value)[i];
}

// Element-wise conversions.
template <class T, int N>
TURBO_DEVICE Vec<float, N> to_float(const Vec<T, N>& a) {
    Vec<float, N> r;
#pragma unroll
    for (int i = 0; i < N; ++i) r[i] = to_float(a[i]);
    return r;
}
// Two at a time: one instruction each, where element by element it takes two for the upper half of a register.
template <int N>
TURBO_DEVICE Vec<float, N> to_float(const Vec<bf16, N>& a) {
    Vec<float, N> r;
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const unsigned pair = reinterpret_cast<const unsigned*>(&a)[i / 2];
            r[i] = __uint_as_float(pair << 16), r[i + 1] = __uint_as_float(pair & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) r[i] = to_float(a[i]);
    }
    return r;
}
template <class T, int N>
TURBO_DEVICE Vec<T, N> from_float(const Vec<float, N>& a) {
    Vec<T, N> r;
#pragma unroll
    for (int i = 0; i < N; ++i) r[i] = from_float<T>(a[i]);
    return r;
}

// acc + sum_i a[i] * b[i]; the order of the additions is the device's own.
template <class T, class U, int N>
TURBO_DEVICE float dot(const Vec<T, N>& a, const Vec<U, N>& b, float acc) {
    const Vec<float, N> x = to_float(a), y = to_float(b);
#pragma unroll
    for (int i = 0; i < N; ++i) acc = fmaf(x[i], y[i], acc);
    return acc;
}

// acc[i] += scale * a[i].
template <class T, int N>
TURBO_DEVICE void axpy(Vec<float, N>& acc, float scale, const Vec<T, N>& a) {
    const Vec<float, N> x = to_float(a);
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] = fmaf(scale, x[i], acc[i]);
}

// acc[i] += a[i] * b[i]: N independent chains, to be added up once by `lane_sum`.
template <class T, class U, int N>
TURBO_DEVICE void multiply_add(Vec<float, N>& acc, const Vec<T, N>& a, const Vec<U, N>& b) {
    const Vec<float, N> x = to_float(a), y = to_float(b);
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] = fmaf(x[i], y[i], acc[i]);
}

// Sum of the elements.
template <int N>
TURBO_DEVICE float lane_sum(const Vec<float, N>& a) {
    float sum = a[0];
#pragma unroll
    for (int i = 1; i < N; ++i) sum += a[i];
    return sum;
}

#else
#include "host_vec.cuh"

#endif
