// Each thread copies GROUPS vectors in as many groups, waits for all but PENDING of them and shows what has arrived.
#include "turbo.cuh"

extern "C" __global__ void async_copy(float* out, const float* in, int num_valid) {
    TURBO_DYNAMIC_SHARED(float, staged);
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    for (int group = 0; group < GROUPS; ++group) {
        const int vector = group * threads + thread;
        cp_async_16(staged + 4 * vector, in + 4 * vector, vector < num_valid);
        cp_async_commit();
    }
    cp_async_wait<PENDING>();
    __syncthreads();
    for (int i = thread; i < 4 * GROUPS * threads; i += threads) out[i] = staged[i];
    __syncthreads();
    cp_async_wait<0>();
}
TURBO_EXPORT(async_copy)
