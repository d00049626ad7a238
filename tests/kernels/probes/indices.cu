// What every thread of a three-dimensional grid sees.
#include "turbo.cuh"

extern "C" __global__ void indices(unsigned* out) {
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned* row = out + (block * threads + thread) * 6;
    row[0] = blockIdx.x;
    row[1] = blockIdx.y;
    row[2] = blockIdx.z;
    row[3] = threadIdx.x;
    row[4] = threadIdx.y;
    row[5] = threadIdx.z;
}
TURBO_EXPORT(indices)
