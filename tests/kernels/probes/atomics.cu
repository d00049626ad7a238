// Atomics on one address from every thread of many blocks. `lock` guards `guarded`, which is not updated atomically.
#include "turbo.cuh"

extern "C" __global__ void atomics(int* ints, unsigned* words, unsigned long long* longs, float* floats, int* tickets,
                                   int* lock, int* guarded) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&ints[0], i);
    atomicMax(&ints[1], i ^ 0x2a);
    atomicMin(&ints[2], -i);
    atomicExch(&ints[3], 7);
    atomicOr(&ints[4], 1 << i % 31);
    atomicAdd(&words[0], static_cast<unsigned>(i));
    atomicMax(&words[1], 0x80000000u + static_cast<unsigned>(i));
    atomicMin(&words[2], 0xffffffffu - static_cast<unsigned>(i));
    atomicAdd(&longs[0], 1ull << 33);
    atomicMax(&longs[1], (1ull << 63) + static_cast<unsigned long long>(i));
    atomicMin(&longs[2], ~0ull - static_cast<unsigned long long>(i));
    atomicAdd(&floats[0], 0.5f);
    tickets[atomicAdd(&ints[5], 1)] = i;
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *static_cast<volatile int*>(guarded) = *static_cast<volatile int*>(guarded) + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
TURBO_EXPORT(atomics)
