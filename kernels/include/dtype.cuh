// dtype - the 16-bit floating types and their conversions; arithmetic is always done in float.
//
// Rounding is to nearest, ties to even, on both devices. A NaN becomes the NaN 0x7fff (what the GPU's cvt gives).
#pragma once

struct half {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

TURBO_DEVICE float to_float(float x) { return x; }
TURBO_DEVICE float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

#if TURBO_CUDA

TURBO_DEVICE float to_float(half x) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}
TURBO_DEVICE unsigned short turbo_half_bits(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
TURBO_DEVICE unsigned short turbo_bf16_bits(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

#else

TURBO_DEVICE float to_float(half x) { return turbo_half_to_float(x.bits); }

#endif

template <class T>
TURBO_DEVICE T from_float(float x);
template <>
TURBO_DEVICE float from_float<float>(float x) {
    return x;
}
template <>
TURBO_DEVICE half from_float<half>(float x) {
    return half{turbo_half_bits(x)};
}
template <>
TURBO_DEVICE bf16 from_float<bf16>(float x) {
    return bf16{turbo_bf16_bits(x)};
}

// Two rounded values in one register, `low` in the low 16 bits: the element order of an mma fragment. T is half or bf16.
template <class T>
TURBO_DEVICE unsigned pack(float low, float high) {
    return from_float<T>(low).bits | static_cast<unsigned>(from_float<T>(high).bits) << 16;
}
