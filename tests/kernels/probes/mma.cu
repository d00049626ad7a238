// d = c + a * b for one m16n8k16 tile: fragments by hand from row-major a (16 x 16), b (16 x 8), c and d (16 x 8).
#include "turbo.cuh"

extern "C" __global__ void mma(float* d, const TYPE* a, const TYPE* b, const float* c) {
    const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
    unsigned fa[4], fb[2];
    float fd[4];
    for (int i = 0; i < 4; ++i) {
        const TYPE* p = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
        fa[i] = p[0].bits | static_cast<unsigned>(p[1].bits) << 16;
        fd[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    }
    for (int i = 0; i < 2; ++i) {
        const TYPE* p = b + (2 * t + 8 * i) * 8 + g;
        fb[i] = p[0].bits | static_cast<unsigned>(p[8].bits) << 16;
    }
    mma_m16n8k16<TYPE>(fd, fa, fb);
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fd[i];
}
TURBO_EXPORT(mma)
