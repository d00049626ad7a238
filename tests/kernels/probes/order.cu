// In which order blocks begin, and threads of block 0 pass before and after a barrier.
#include "turbo.cuh"

extern "C" __global__ void order(int* blocks, int* threads, int* clock) {
    if (threadIdx.x == 0) blocks[blockIdx.x] = atomicAdd(&clock[0], 1);
    if (blockIdx.x == 0) threads[threadIdx.x] = atomicAdd(&clock[1], 1);
    __syncthreads();
    if (blockIdx.x == 0) threads[blockDim.x + threadIdx.x] = atomicAdd(&clock[2], 1);
}
TURBO_EXPORT(order)
