// Reverses each block's numbers through dynamic shared memory. BARRIER=0 forgets the barrier: a race between warps.
#include "turbo.cuh"

extern "C" __global__ void reverse(float* out, const float* in) {
    TURBO_DYNAMIC_SHARED(float, staged);
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x;
    staged[threadIdx.x] = in[first + threadIdx.x];
#if BARRIER
    __syncthreads();
#endif
    out[first + threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}
TURBO_EXPORT(reverse)
