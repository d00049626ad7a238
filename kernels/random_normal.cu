// random_normal - fill an array with normal variates that depend on seed and index only.
//
// Math      out[4g .. 4g+3] = std * (r cos a, r sin a, r' cos a', r' sin a');  r = sqrt(-2 ln u), a = 2 pi v, with
//           (u, v, u', v') the words of Philox(key seed, counter (g, 0, 1)) as uniform variates
// Shapes    out: (count,) TYPE;  std: float, standard deviation;  seed: uint64
// Variants  TYPE=float|half|bf16
// Launch    grid (blocks,)  block (threads,), threads <= 1024; any numbers give the same result
// Staging   nothing
// Cost      writes count elements; some 30 instructions each.
// Source    Box & Muller 1958; Salmon et al. 2011 (Philox).  Oracle: testing/reference_sampling.py::random_normal
#include "turbo.cuh"

TURBO_DEVICE void box_muller(unsigned radius_bits, unsigned angle_bits, float std, float& first, float& second) {
    const float radius = std * sqrtf(-2.0f * logf(uniform_open(radius_bits)));
    const float angle = 6.28318531f * uniform_open(angle_bits);
    first = radius * cosf(angle);
    second = radius * sinf(angle);
}

extern "C" __global__ void random_normal(TYPE* __restrict__ out, long long count, float std, unsigned long long seed) {
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long group = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; 4 * group < count;
         group += threads) {
        // The last counter word tells these draws from the sampler's.
        const Philox4 bits = philox4x32(seed, static_cast<unsigned>(group), static_cast<unsigned>(group >> 32), 0, 1);
        Vec<float, 4> values;
        box_muller(bits.x, bits.y, std, values[0], values[1]);
        box_muller(bits.z, bits.w, std, values[2], values[3]);
        const Vec<TYPE, 4> rounded = from_float<TYPE>(values);
        if (4 * group + 4 <= count) store_vec(out + 4 * group, rounded);
        else
            for (int i = 0; 4 * group + i < count; ++i) out[4 * group + i] = rounded[i];
    }
}
TURBO_EXPORT(random_normal)
