// host_math - CUDA's built-in functions on one value: bits, arithmetic, conversions, atomics.
//
// Everything here is inline and free of calls into libm where a loop over it should vectorise.
#pragma once

template <class To, class From>
TURBO_DEVICE To turbo_bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
TURBO_DEVICE unsigned __float_as_uint(float x) { return turbo_bit_cast<unsigned>(x); }
TURBO_DEVICE int __float_as_int(float x) { return turbo_bit_cast<int>(x); }
TURBO_DEVICE float __uint_as_float(unsigned x) { return turbo_bit_cast<float>(x); }
TURBO_DEVICE float __int_as_float(int x) { return turbo_bit_cast<float>(x); }

TURBO_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
TURBO_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TURBO_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
TURBO_DEVICE int __ffsll(long long x) { return __builtin_ffsll(x); }
TURBO_DEVICE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
TURBO_DEVICE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
TURBO_DEVICE unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
TURBO_DEVICE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// A NaN loses against a number, and no call that would keep a loop from vectorising.
TURBO_DEVICE float turbo_fmaxf(float a, float b) { return a > b || b != b ? a : b; }
TURBO_DEVICE float turbo_fminf(float a, float b) { return a < b || b != b ? a : b; }
#define fmaxf turbo_fmaxf
#define fminf turbo_fminf
TURBO_DEVICE float min(float a, float b) { return turbo_fminf(a, b); }
TURBO_DEVICE float max(float a, float b) { return turbo_fmaxf(a, b); }
template <class A, class B>
TURBO_DEVICE auto min(A a, B b) -> decltype(a + b) {
    return a < b ? a : b;
}
template <class A, class B>
TURBO_DEVICE auto max(A a, B b) -> decltype(a + b) {
    return a > b ? a : b;
}

// e^x within 2 units in the last place; exactly 0 for -inf. Inline, so that a loop over it vectorises.
TURBO_DEVICE float turbo_expf(float x) {
    const float clamped = turbo_fminf(turbo_fmaxf(x, -110.0f), 89.0f);
    const float n = __builtin_rintf(clamped * 1.44269504f);
    const float r = __builtin_fmaf(n, -1.42860677e-6f, __builtin_fmaf(n, -0.693145752f, clamped));
    float p = 1.98412698e-4f;
    p = __builtin_fmaf(p, r, 1.38888889e-3f);
    p = __builtin_fmaf(p, r, 8.33333333e-3f);
    p = __builtin_fmaf(p, r, 4.16666667e-2f);
    p = __builtin_fmaf(p, r, 1.66666667e-1f);
    p = __builtin_fmaf(p, r, 0.5f);
    p = __builtin_fmaf(p, r, 1.0f);
    p = __builtin_fmaf(p, r, 1.0f);
    // 2^n in two factors, because n may be one step outside the exponent's range.
    const int half_n = static_cast<int>(n) >> 1, rest = static_cast<int>(n) - half_n;
    const float value = p * __int_as_float((half_n + 127) << 23) * __int_as_float((rest + 127) << 23);
    return x != x ? x : value;
}
#define expf turbo_expf
TURBO_DEVICE float __expf(float x) { return turbo_expf(x); }
TURBO_DEVICE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }

// Subnormals come out right because the multiplication renormalises them.
TURBO_DEVICE float turbo_half_to_float(unsigned short bits) {
    const unsigned magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    const float scaled = __uint_as_float(magnitude) * 5.192296858534828e33f;  // 2^112
    const unsigned finite = __float_as_uint(scaled);
    return __uint_as_float(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}
TURBO_DEVICE unsigned short turbo_half_bits(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    // Normal results: move the exponent's bias and round the 13 bits that fall off to nearest even.
    const unsigned normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // Subnormal results: adding 0.5 makes the float adder round at 2^-24, the unit of the result.
    const unsigned tiny = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    unsigned result = magnitude < 0x38800000u ? tiny : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7fffu : sign | result;
    return static_cast<unsigned short>(result);
}
TURBO_DEVICE unsigned short turbo_bf16_bits(float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return static_cast<unsigned short>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

// Atomics. Relaxed, as CUDA's are; __threadfence() orders.
#define TURBO_ATOMIC(name, T, builtin)                                                                                 \
    TURBO_DEVICE T name(T* address, T value) { return builtin(address, value, __ATOMIC_RELAXED); }
#define TURBO_ATOMIC_LOOP(name, T, expression)                                                                         \
    TURBO_DEVICE T name(T* address, T value) {                                                                         \
        T old;                                                                                                         \
        __atomic_load(address, &old, __ATOMIC_RELAXED);                                                                \
        T wanted = expression;                                                                                         \
        while (!__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))          \
            wanted = expression;                                                                                       \
        return old;                                                                                                    \
    }
#define TURBO_ATOMICS(T)                                                                                               \
    TURBO_ATOMIC(atomicAdd, T, __atomic_fetch_add)                                                                     \
    TURBO_ATOMIC(atomicOr, T, __atomic_fetch_or)                                                                       \
    TURBO_ATOMIC(atomicAnd, T, __atomic_fetch_and)                                                                     \
    TURBO_ATOMIC(atomicXor, T, __atomic_fetch_xor)                                                                     \
    TURBO_ATOMIC(atomicExch, T, __atomic_exchange_n)                                                                   \
    TURBO_ATOMIC_LOOP(atomicMax, T, old > value ? old : value)                                                         \
    TURBO_ATOMIC_LOOP(atomicMin, T, old < value ? old : value)                                                         \
    TURBO_DEVICE T atomicCAS(T* address, T compare, T value) {                                                         \
        __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);              \
        return compare;                                                                                                \
    }
TURBO_ATOMICS(int)
TURBO_ATOMICS(unsigned)
TURBO_ATOMICS(unsigned long long)
TURBO_ATOMIC_LOOP(atomicAdd, float, old + value)
TURBO_ATOMIC_LOOP(atomicExch, float, value)
#undef TURBO_ATOMICS
#undef TURBO_ATOMIC_LOOP
#undef TURBO_ATOMIC

TURBO_DEVICE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TURBO_DEVICE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
