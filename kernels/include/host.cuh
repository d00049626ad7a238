// host - CUDA's language for a C++ compiler: keywords, thread indices, barriers, warp collectives, the kernel's entry.
//
// A block runs on one OS thread; each of its CUDA threads is a fiber that runs until it must wait. What waits lives in
// host_runtime.cpp, a library compiled once; kernels are shared objects that call it through the C functions below.
// `__shared__` is thread-local storage of that OS thread. A warp collective deposits each lane's operand, and the last
// lane to arrive computes for all.
#pragma once
#include <math.h>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define TURBO_DEVICE inline __attribute__((always_inline))
#define TURBO_INF __builtin_inff()

// AddressSanitizer guards global variables and not thread-local ones: a build for it puts them into a section, between
// redzones, and runs blocks on one thread. (g++ ignores the section in templates: there they are only guarded.)
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static __attribute__((section("turbo_shared")))
extern "C" __attribute__((weak, visibility("hidden"))) unsigned char __start_turbo_shared[], __stop_turbo_shared[];
#define TURBO_SHARED_RANGE                                                                                             \
    TURBO_RUNTIME unsigned char* const turbo_shared_range[2];                                                          \
    unsigned char* const turbo_shared_range[2] = {__start_turbo_shared, __stop_turbo_shared};
#else
#define __shared__ static thread_local
#define TURBO_SHARED_RANGE
#endif

struct uint3 {
    unsigned x, y, z;
};

// One CUDA thread, as its own code sees it; the runtime keeps what it needs to resume the fiber behind these fields.
struct TurboThread {
    uint3 index;
    unsigned lane;
};
struct TurboBlock {
    uint3 index, dim, grid;
    unsigned char* dynamic_shared;
};

#define TURBO_RUNTIME extern "C" __attribute__((visibility("default")))

// Set by the runtime at every switch. "initial-exec" makes an access two loads instead of a call.
TURBO_RUNTIME __thread TurboThread* turbo_thread __attribute__((tls_model("initial-exec")));
TURBO_RUNTIME __thread TurboBlock turbo_block __attribute__((tls_model("initial-exec")));

enum TurboBarrier { TURBO_SYNC, TURBO_SYNC_OR, TURBO_SYNC_AND, TURBO_SYNC_COUNT };
enum TurboReduction { TURBO_SUM, TURBO_MAX };
enum TurboNumber { TURBO_FLOAT, TURBO_INT, TURBO_UNSIGNED, TURBO_LONG, TURBO_UNSIGNED_LONG };

// End this launch with an error that names the calling thread; never returns.
TURBO_RUNTIME __attribute__((noreturn, cold)) void turbo_fail(const char* reason);
TURBO_RUNTIME int turbo_barrier(TurboBarrier kind, int predicate);
TURBO_RUNTIME void turbo_warp_barrier(unsigned mask);
TURBO_RUNTIME unsigned turbo_shuffle32(unsigned mask, unsigned value, int source);
TURBO_RUNTIME unsigned long long turbo_shuffle64(unsigned mask, unsigned long long value, int source);
TURBO_RUNTIME unsigned turbo_ballot(unsigned mask, int predicate);
TURBO_RUNTIME unsigned turbo_match(unsigned mask, unsigned long long value);
// Operand and result as bits of `type`.
TURBO_RUNTIME unsigned turbo_warp_reduce32(TurboReduction reduction, TurboNumber type, unsigned bits);
TURBO_RUNTIME unsigned long long turbo_warp_reduce64(TurboReduction, TurboNumber, unsigned long long bits);
TURBO_RUNTIME unsigned turbo_block_reduce32(TurboReduction reduction, TurboNumber type, unsigned bits);
TURBO_RUNTIME unsigned long long turbo_block_reduce64(TurboReduction, TurboNumber, unsigned long long bits);
TURBO_RUNTIME void turbo_ldmatrix(unsigned* registers, const void* row, int count, bool transposed);
TURBO_RUNTIME void turbo_mma(float* d, const unsigned* a, const unsigned* b, bool is_bf16);
TURBO_RUNTIME void turbo_cp_async(void* shared, const void* global, bool valid);
TURBO_RUNTIME void turbo_cp_async_commit();
TURBO_RUNTIME void turbo_cp_async_wait(int pending);

#define threadIdx (turbo_thread->index)
#define blockIdx (turbo_block.index)
#define blockDim (turbo_block.dim)
#define gridDim (turbo_block.grid)
#define warpSize 32

#define TURBO_DYNAMIC_SHARED(T, name) T* const name = reinterpret_cast<T*>(turbo_block.dynamic_shared)

template <int... I>
struct TurboIndices {};
template <int N, int... I>
struct TurboIndexList : TurboIndexList<N - 1, N - 1, I...> {};
template <int... I>
struct TurboIndexList<0, I...> {
    using type = TurboIndices<I...>;
};

// Runs the kernel for the current thread; argument i lies in the 8-byte slot i.
template <class... P, int... I>
TURBO_DEVICE void turbo_call(void (*kernel)(P...), const unsigned long long* slots, TurboIndices<I...>) {
    kernel(*reinterpret_cast<const P*>(slots + I)...);
}
template <class... P>
TURBO_DEVICE void turbo_run(void (*kernel)(P...), const unsigned long long* slots) {
    turbo_call(kernel, slots, typename TurboIndexList<sizeof...(P)>::type{});
}
#define TURBO_EXPORT(kernel)                                                                                           \
    TURBO_SHARED_RANGE                                                                                                 \
    TURBO_RUNTIME void turbo_entry(const unsigned long long* slots) { turbo_run(kernel, slots); }

#include "host_math.cuh"
#include "host_warp.cuh"
