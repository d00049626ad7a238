// Thread 3 of block 1 does what a processor, a sanitizer or the runtime stops a program for, by `fault`; 0: nothing.
#include "turbo.cuh"

#define WRITES_GLOBAL 1
#define READS_GLOBAL 2
#define DIVIDES 3
#define TRAPS 4
#define OVERRUNS_STATIC_SHARED 5
#define OVERRUNS_DYNAMIC_SHARED 6
#define OVERRUNS_LOCAL 7
#define COPIES_GLOBAL 8
#define SHIFTS 9
#define OVERFLOWS 10
#define MISALIGNS 11
#define INDEXES_OUTSIDE 12
#define LEAVES 13
#define CASTS 14

extern "C" __global__ void crashes(int* out, int* target, const int* in, long long offset, int amount, int fault) {
    __shared__ int first[32];
    __shared__ int second[32];
    TURBO_DYNAMIC_SHARED(int, dynamic);
    const int thread = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x * blockDim.x) + thread;
    first[thread] = second[thread] = dynamic[thread] = i;
    __syncthreads();
    int local[4] = {thread, thread, thread, thread}, value = 0;
    volatile int *shared = first, *own = local, *extent = dynamic;
    switch (blockIdx.x == 1 && thread == 3 ? fault : 0) {
    case WRITES_GLOBAL:
        target[offset] = 1;
        break;
    case READS_GLOBAL:
        value = in[offset];
        break;
    case DIVIDES:
        value = thread / amount;
        break;
    case TRAPS:
        __builtin_trap();
        break;
    case OVERRUNS_STATIC_SHARED:
        shared[offset] = 1;
        break;
    case OVERRUNS_DYNAMIC_SHARED:
        extent[offset] = 1;
        break;
    case OVERRUNS_LOCAL:
        own[offset] = 1;
        break;
    case COPIES_GLOBAL:
        cp_async_16(dynamic, in + offset);
        cp_async_commit();
        cp_async_wait<0>();
        break;
    case SHIFTS:
        value = thread << amount;
        break;
    case OVERFLOWS:
        value = 0x7fffffff + amount;
        break;
    case MISALIGNS:
        value = *reinterpret_cast<const int*>(reinterpret_cast<const char*>(in) + amount);
        break;
    case INDEXES_OUTSIDE:
        value = second[amount];
        break;
    case CASTS:
        value = static_cast<int>(static_cast<float>(amount) * 1e9f);
        break;
    case LEAVES:
        return;  // the others wait for it, each with an array on its stack
    }
    __syncthreads();
    out[i] = value + first[thread] + own[0];
}
TURBO_EXPORT(crashes)
