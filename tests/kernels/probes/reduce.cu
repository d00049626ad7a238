// Reductions of a warp and of a block, the block's twice in a row on one scratch.
#include "turbo.cuh"

extern "C" __global__ void reduce(TYPE* warp_sums, TYPE* warp_maxima, TYPE* block_sums, TYPE* block_maxima,
                                  TYPE* butterfly, const TYPE* in) {
    __shared__ TYPE scratch[32];
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const TYPE value = in[i];
    warp_sums[i] = warp_sum(value);
    warp_maxima[i] = warp_max(value);
    const TYPE sum = block_sum(value, scratch);
    block_maxima[i] = block_max(value, scratch);
    block_sums[i] = sum;
    TYPE partial = value;
    for (int offset = 16; offset > 0; offset >>= 1) partial += __shfl_xor_sync(0xffffffffu, partial, offset);
    butterfly[i] = partial;
}
TURBO_EXPORT(reduce)
