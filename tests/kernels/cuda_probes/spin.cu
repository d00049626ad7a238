// spin - keep one thread busy for a while, then write a value: work whose end a test can tell from its beginning.
#include "turbo.cuh"

extern "C" __global__ void spin(int* out, long long cycles, int value) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
    *out = value;
}
TURBO_EXPORT(spin)
