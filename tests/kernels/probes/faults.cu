// Mistakes, one for each FAULT: what a GPU answers with a hang, garbage or a lost context.
#include "turbo.cuh"

#define EXITS_BEFORE_BARRIER 0
#define EXITS_BEFORE_SHUFFLE 1
#define DIFFERENT_BARRIERS 2
#define DIFFERENT_COLLECTIVES 3
#define MASK_WITHOUT_SELF 4
#define MISALIGNED_VECTOR 5
#define MISALIGNED_COPY 6
#define COPY_OUT_OF_SHARED 7
#define WAITS_IN_TWO_PLACES 8
#define RAGGED_BLOCK_SUM 9
#define COPIES_BEFORE_FAILURE 10

extern "C" __global__ void faults(float* out, const float* in, int bad_block) {
    TURBO_DYNAMIC_SHARED(float, shared);
    const bool is_bad = static_cast<int>(blockIdx.x) == bad_block;
    const int thread = static_cast<int>(threadIdx.x);
    if (is_bad) {
#if FAULT == EXITS_BEFORE_BARRIER
        if (thread >= 40) return;
#elif FAULT == EXITS_BEFORE_SHUFFLE
        if (thread == 5) return;
        shared[0] = warp_sum(1.0f);
#elif FAULT == DIFFERENT_BARRIERS
        if (thread == 3) __syncthreads_or(1);
#elif FAULT == DIFFERENT_COLLECTIVES
        if (thread < 16) shared[0] = __shfl_sync(0xffffffffu, 1.0f, 0);
        else __ballot_sync(0xffffffffu, 1);
#elif FAULT == MASK_WITHOUT_SELF
        __syncwarp(0x0000ffffu);
#elif FAULT == MISALIGNED_VECTOR
        shared[0] = load_vec<float, 4>(in + 1)[0];
#elif FAULT == MISALIGNED_COPY
        cp_async_16(shared + 1, in);
#elif FAULT == COPY_OUT_OF_SHARED
        cp_async_16(out, in);
#elif FAULT == WAITS_IN_TWO_PLACES
        if (thread < 32) __syncwarp(0xffffffffu);
        if (thread == 0) __syncwarp(0xffffffffu);
#elif FAULT == RAGGED_BLOCK_SUM
        shared[0] = block_sum(1.0f, shared);
#elif FAULT == COPIES_BEFORE_FAILURE
        cp_async_16(shared, in);
        cp_async_commit();
        if (thread == 5) return;
#endif
    }
    __syncthreads();
#if FAULT == COPIES_BEFORE_FAILURE
    cp_async_wait<0>();  // in a launch without a bad block there is nothing to wait for
    if (shared[0] == shared[0]) return;
#endif
    out[blockIdx.x] = 1.0f;
}
TURBO_EXPORT(faults)
