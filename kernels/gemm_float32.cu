// gemm_float32 - matrix product of float32 operands by fused multiply-adds, for many rows.
//
// Math      out[m,n] = sum_k x[m,k] * weight[n,k]
// Shapes    out: (M, N) float;  x: (M, K) float;  weight: (N, K) float;  all row-major, any sizes
// Variants  -
// Launch    grid (ceil(N / 64), ceil(M / 64))  block (64,)  shared static
// Staging   64 x 16 tiles of both operands, transposed, so that a thread reads its 8 + 8 values of one k as vectors
// Aliasing  none.   Determinism  one chain of additions in the order of k for each result; bitwise equal for any M, N.
// Cost      2*M*N*K operations on the float units; reads N*K * ceil(M / 64) + M*K * ceil(N / 64) elements
// Source    the register-tiled product of Volkov & Demmel 2008.  Oracle: testing/reference_gemm.py
#include "turbo.cuh"

constexpr int TILE = 64, DEPTH = 16, THREADS = 64, PITCH = TILE + 4;

// tile[k][row] = source[first + row][k0 + k], zero outside. Lanes run along k, which is contiguous in memory.
TURBO_DEVICE void load_tile(float (*tile)[PITCH], const float* source, int first, int rows, int k0, int K) {
    for (int i = static_cast<int>(threadIdx.x); i < TILE * DEPTH; i += THREADS) {
        const int row = i / DEPTH, k = i % DEPTH;
        const bool inside = first + row < rows && k0 + k < K;
        tile[k][row] = inside ? source[static_cast<long long>(first + row) * K + k0 + k] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_float32(float* __restrict__ out, const float* __restrict__ x, const float* __restrict__ weight, int M, int N,
                 int K) {
    __shared__ __align__(16) float x_tile[DEPTH][PITCH];
    __shared__ __align__(16) float w_tile[DEPTH][PITCH];
    const int m0 = static_cast<int>(blockIdx.y) * TILE, n0 = static_cast<int>(blockIdx.x) * TILE;
    // A thread owns rows 4i..4i+3 and 32+4i..32+4i+3 and the same columns by j: lanes then read neighbouring banks.
    const int own_m = static_cast<int>(threadIdx.x) / 8 * 4, own_n = static_cast<int>(threadIdx.x) % 8 * 4;
    Vec<float, 4> sum[8][2] = {};
    for (int k0 = 0; k0 < K; k0 += DEPTH) {
        load_tile(x_tile, x, m0, M, k0, K);
        load_tile(w_tile, weight, n0, N, k0, K);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            Vec<float, 4> a[2], b[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                a[h] = load_vec<float, 4>(&x_tile[k][own_m + 32 * h]);
                b[h] = load_vec<float, 4>(&w_tile[k][own_n + 32 * h]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                axpy(sum[i][0], a[i / 4][i % 4], b[0]);
                axpy(sum[i][1], a[i / 4][i % 4], b[1]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int m = m0 + own_m + i / 4 * 32 + i % 4, n = n0 + own_n + j / 4 * 32 + j % 4;
            if (m < M && n < N) out[static_cast<long long>(m) * N + n] = sum[i][j / 4][j % 4];
        }
}
TURBO_EXPORT(gemm_float32)
