// The voting barriers, and how many threads a block has seen before the barrier.
#include "turbo.cuh"

extern "C" __global__ void barrier(int* any, int* all, int* count, int* seen, const int* predicate) {
    __shared__ int arrived;
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0) arrived = 0;
    __syncthreads();
    atomicAdd(&arrived, 1);
    any[i] = __syncthreads_or(predicate[i]);
    seen[i] = arrived;
    all[i] = __syncthreads_and(predicate[i]);
    count[i] = __syncthreads_count(predicate[i]);
}
TURBO_EXPORT(barrier)
