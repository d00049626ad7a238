// host_vec - Vec on the host, written with the compiler's vector extension so that it always becomes SIMD code.
#pragma once

template <int N>
struct TurboLanes {
    typedef float floats __attribute__((vector_size(4 * N)));
    typedef unsigned words __attribute__((vector_size(4 * N)));
    typedef unsigned short shorts __attribute__((vector_size(2 * N)));
};

template <class T, int N>
TURBO_DEVICE void turbo_check_alignment(const T* p) {
    constexpr unsigned long BYTES = sizeof(T) * N < 16 ? sizeof(T) * N : 16;
    if (__builtin_expect((reinterpret_cast<unsigned long>(p) & (BYTES - 1)) != 0, 0))
        turbo_fail("accesses a vector at a misaligned address");
}
template <class T, int N>
TURBO_DEVICE Vec<T, N> load_vec(const T* p) {
    turbo_check_alignment<T, N>(p);
    Vec<T, N> r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
}
template <class T, int N>
TURBO_DEVICE Vec<T, N> load_vec_stream(const T* p) {
    return load_vec<T, N>(p);
}
template <class T, int N>
TURBO_DEVICE void store_vec(T* p, Vec<T, N> value) {
    turbo_check_alignment<T, N>(p);
    __builtin_memcpy(p, &value, sizeof value);
}

template <int N>
TURBO_DEVICE typename TurboLanes<N>::floats turbo_lanes(const Vec<float, N>& a) {
    return turbo_bit_cast<typename TurboLanes<N>::floats>(a);
}
// Eight 16-bit elements to words in one instruction; g++ makes five of __builtin_convertvector.
template <int N>
TURBO_DEVICE typename TurboLanes<N>::words turbo_widen(typename TurboLanes<N>::shorts a) {
    using Words = typename TurboLanes<N>::words;
#if defined(__AVX2__) && !defined(__clang__)
    typedef short Eight __attribute__((vector_size(16)));
    if constexpr (N == 8) return turbo_bit_cast<Words>(__builtin_ia32_pmovzxwd256(turbo_bit_cast<Eight>(a)));
#endif
    return __builtin_convertvector(a, Words);
}
template <int N>
TURBO_DEVICE typename TurboLanes<N>::floats turbo_lanes(const Vec<bf16, N>& a) {
    const auto words = turbo_widen<N>(turbo_bit_cast<typename TurboLanes<N>::shorts>(a));
    return turbo_bit_cast<typename TurboLanes<N>::floats>(words << 16);
}
template <int N>
TURBO_DEVICE typename TurboLanes<N>::floats turbo_lanes(const Vec<half, N>& a) {
    using Floats = typename TurboLanes<N>::floats;
    using Words = typename TurboLanes<N>::words;
#if defined(__F16C__) && !defined(__clang__)
    typedef short Eight __attribute__((vector_size(16)));
    if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256(turbo_bit_cast<Eight>(a));
#endif
    const Words bits = turbo_widen<N>(turbo_bit_cast<typename TurboLanes<N>::shorts>(a));
    const Words magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    const Floats scaled = turbo_bit_cast<Floats>(magnitude) * 5.192296858534828e33f;  // as turbo_half_to_float
    const Words special = turbo_bit_cast<Words>(magnitude >= 0x0f800000u);
    const Words finite = turbo_bit_cast<Words>(scaled);
    return turbo_bit_cast<Floats>(sign | (special & (magnitude | 0x7f800000u)) | (~special & finite));
}

template <class T, int N>
TURBO_DEVICE Vec<float, N> to_float(const Vec<T, N>& a) {
    return turbo_bit_cast<Vec<float, N>>(turbo_lanes(a));
}
template <class T, int N>
TURBO_DEVICE Vec<T, N> from_float(const Vec<float, N>& a) {
    Vec<T, N> r;
    for (int i = 0; i < N; ++i) r.v[i] = from_float<T>(a.v[i]);
    return r;
}

// Sum of the lanes, halving.
template <int N>
TURBO_DEVICE float turbo_lane_sum(typename TurboLanes<N>::floats a) {
    if constexpr (N == 1) return a[0];
    else if constexpr (N == 2) return a[0] + a[1];
    else {
        typename TurboLanes<N / 2>::floats low, high;
        __builtin_memcpy(&low, &a, sizeof low);
        __builtin_memcpy(&high, reinterpret_cast<const char*>(&a) + sizeof low, sizeof high);
        return turbo_lane_sum<N / 2>(low + high);
    }
}
template <class T, class U, int N>
TURBO_DEVICE float dot(const Vec<T, N>& a, const Vec<U, N>& b, float acc) {
    return acc + turbo_lane_sum<N>(turbo_lanes(a) * turbo_lanes(b));
}
// A sum may be taken in any order, so pairs of bf16 are split by a shift and a mask instead of being spread out.
template <int N>
TURBO_DEVICE float dot(const Vec<bf16, N>& a, const Vec<bf16, N>& b, float acc) {
    if constexpr (N == 1) return acc + to_float(a.v[0]) * to_float(b.v[0]);
    else {
        using Words = typename TurboLanes<N / 2>::words;
        using Floats = typename TurboLanes<N / 2>::floats;
        const Words x = turbo_bit_cast<Words>(a), y = turbo_bit_cast<Words>(b);
        const Floats even = turbo_bit_cast<Floats>(x << 16) * turbo_bit_cast<Floats>(y << 16);
        const Floats odd = turbo_bit_cast<Floats>(x & 0xffff0000u) * turbo_bit_cast<Floats>(y & 0xffff0000u);
        return acc + turbo_lane_sum<N / 2>(even + odd);
    }
}
template <class T, int N>
TURBO_DEVICE void axpy(Vec<float, N>& acc, float scale, const Vec<T, N>& a) {
    acc = turbo_bit_cast<Vec<float, N>>(turbo_lanes(acc) + scale * turbo_lanes(a));
}
template <class T, class U, int N>
TURBO_DEVICE void multiply_add(Vec<float, N>& acc, const Vec<T, N>& a, const Vec<U, N>& b) {
    acc = turbo_bit_cast<Vec<float, N>>(turbo_lanes(acc) + turbo_lanes(a) * turbo_lanes(b));
}
template <int N>
TURBO_DEVICE float lane_sum(const Vec<float, N>& a) {
    return turbo_lane_sum<N>(turbo_lanes(a));
}
