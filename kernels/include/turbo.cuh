// turbo - the first include of every kernel: one dialect of CUDA C++ for NVRTC and for the host's C++ compiler.
//
// Under NVRTC these headers are thin wrappers over inline PTX. Under a C++ compiler host.cuh emulates a block: its
// threads are fibers of one OS thread (see host_runtime.cpp). A kernel uses only what these headers offer, so that the
// same file runs on both; it never tests TURBO_CUDA itself.
#pragma once

#if defined(__CUDACC__)
#define TURBO_CUDA 1
#define TURBO_DEVICE __device__ __forceinline__
#define TURBO_INF __int_as_float(0x7f800000)
// Ends every .cu file; the host compiler needs an entry that unpacks the arguments.
#define TURBO_EXPORT(kernel)
// Declares `T* name`, the dynamic shared memory of the launch (16-byte aligned); g++ cannot express `extern __shared__`.
#define TURBO_DYNAMIC_SHARED(T, name)                                                                                  \
    extern __shared__ __align__(16) unsigned char turbo_dynamic_shared[];                                              \
    T* const name = reinterpret_cast<T*>(turbo_dynamic_shared)
#else
#define TURBO_CUDA 0
#include "host.cuh"
#endif

#include "dtype.cuh"
#include "vec.cuh"
#include "reduce.cuh"
#include "rng.cuh"
#include "mma.cuh"
#include "async_copy.cuh"
