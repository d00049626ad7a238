// The registers of all four forms of ldmatrix, for four 8 x 8 matrices that lie row by row in shared memory.
#include "turbo.cuh"

extern "C" __global__ void ldmatrix(unsigned* out, const unsigned* in) {
    __shared__ __align__(16) unsigned rows[32][4];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 4; ++i) rows[lane][i] = in[4 * lane + i];
    __syncthreads();
    unsigned four[4], two[2];
    ldmatrix_x4(four, rows[lane]);
    for (int i = 0; i < 4; ++i) out[32 * i + lane] = four[i];
    ldmatrix_x4_trans(four, rows[lane]);
    for (int i = 0; i < 4; ++i) out[32 * (4 + i) + lane] = four[i];
    ldmatrix_x2(two, rows[lane]);
    for (int i = 0; i < 2; ++i) out[32 * (8 + i) + lane] = two[i];
    ldmatrix_x2_trans(two, rows[lane]);
    for (int i = 0; i < 2; ++i) out[32 * (10 + i) + lane] = two[i];
}
TURBO_EXPORT(ldmatrix)
