// Reads shared memory that nobody wrote, after an earlier block may have: static and dynamic.
#include "turbo.cuh"

extern "C" __global__ void uninitialised(float* out) {
    __shared__ float fixed[4];
    TURBO_DYNAMIC_SHARED(float, dynamic);
    out[2 * blockIdx.x] = fixed[blockIdx.x % 4];
    out[2 * blockIdx.x + 1] = dynamic[blockIdx.x % 4];
    for (int i = 0; i < 4; ++i) fixed[i] = dynamic[i] = 1.0f;
}
TURBO_EXPORT(uninitialised)
