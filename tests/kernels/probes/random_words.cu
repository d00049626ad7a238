// Philox words and the open interval.
#include "turbo.cuh"

extern "C" __global__ void random_words(unsigned* words, float* uniform, const unsigned long long* keys,
                                        const unsigned* counters) {
    const int i = static_cast<int>(threadIdx.x);
    const unsigned* c = counters + 4 * i;
    const Philox4 draw = philox4x32(keys[i], c[0], c[1], c[2], c[3]);
    words[4 * i] = draw.x;
    words[4 * i + 1] = draw.y;
    words[4 * i + 2] = draw.z;
    words[4 * i + 3] = draw.w;
    uniform[i] = uniform_open(c[0]);
}
TURBO_EXPORT(random_words)
