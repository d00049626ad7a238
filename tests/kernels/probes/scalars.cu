// Every kind of scalar parameter, back in memory.
#include "turbo.cuh"

extern "C" __global__ void scalars(long long* ints, unsigned long long* words, double* floats, int a, long long b,
                                   unsigned c, unsigned long long d, float e, double f, const float* null) {
    ints[0] = a;
    ints[1] = b;
    words[0] = c;
    words[1] = d;
    floats[0] = e;
    floats[1] = f;
    ints[2] = null == nullptr;
}
TURBO_EXPORT(scalars)
