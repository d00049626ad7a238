// reverse - write n values back to front through dynamic shared memory.
#include "turbo.cuh"

extern "C" __global__ void reverse(float* values, int n) {
    TURBO_DYNAMIC_SHARED(float, staged);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) staged[i] = values[i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) values[i] = staged[n - 1 - i];
}
TURBO_EXPORT(reverse)
