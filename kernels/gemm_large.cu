// gemm_large - matrix product of 16-bit operands on tensor cores, from about nine rows up.
//
// Math      out[m,n] = sum_k x[m,k] * weight[n,k], accumulated in float
// Shapes    out: (M, N) OUT;  x: (M, K) TYPE;  weight: (N, K) TYPE;  all row-major; K % 8 == 0 where ALIGNED
// Variants  TYPE=half|bf16 OUT=float TILE=64,32,128,1,1,4,6 ALIGNED=0|1
// Variants  TYPE=half OUT=half TILE=128,128,64,2,2,1,3 ALIGNED=1
// Variants  TYPE=bf16 OUT=bf16 TILE=128,256,64,2,4,1,3|128,128,64,2,2,1,3|64,128,64,1,4,1,4|64,64,128,1,2,2,3 ALIGNED=1
// Variants  TYPE=bf16 OUT=bf16 TILE=32,64,128,1,2,2,4|32,32,256,1,1,4,4|16,64,128,1,2,2,5|16,32,256,1,1,4,6 ALIGNED=1
// Launch    grid (tiles,), ceil(M / BM) * ceil(N / BN)  block (32 * warps,)
//           TILE = BM,BN,BK,WARPS_M,WARPS_N,WARPS_K,STAGES: tile of the block, its warps, depth of the pipeline
//           shared max(STAGES * (BM + BN) * BK * 2, WARPS_K * BM * (BN + 8) * 4) bytes
// Staging   both operands through a ring of cp.async stages, 16-byte chunks swizzled by row so that ldmatrix meets no
//           bank twice; WARPS_K warps share a tile's k steps and add up their sums at the end, in a fixed order, which
//           gives few rows enough warps without atomics. Results leave through shared memory in whole lines.
// Aliasing  none.   Determinism  bitwise equal for equal TILE: no result depends on M, N or other blocks.
// Cost      2*M*N*K operations on mma.m16n8k16; reads N*K * ceil(M / BM) + M*K * ceil(N / BN) elements
// Source    the multistage product of CUTLASS (sm80), tiles in groups of rows for L2. Oracle: testing/reference_gemm.py
#include "turbo.cuh"

constexpr int SHAPE[] = {TILE};
constexpr int BM = SHAPE[0], BN = SHAPE[1], BK = SHAPE[2];
constexpr int WARPS_M = SHAPE[3], WARPS_N = SHAPE[4], WARPS_K = SHAPE[5], STAGES = SHAPE[6];
constexpr int THREADS = 32 * WARPS_M * WARPS_N * WARPS_K;
constexpr int ROW_TILES = BM / WARPS_M / 16, COLUMN_TILES = BN / WARPS_N / 8;  // mma tiles of a warp
constexpr int STEPS = BK / 16 / WARPS_K;                                       // k steps of a warp in a stage
constexpr int CHUNKS = BK / 8;                                                 // 16-byte chunks of a tile's row
constexpr int ROW_STEP = THREADS / CHUNKS;                                     // rows that the block copies at a time
constexpr int STAGE = (BM + BN) * BK;                                          // elements of a stage
constexpr int PITCH = BN + 8;                                                  // floats of a row of sums
constexpr int GROUP = 16;  // row tiles that share their columns in L2
static_assert(BK % 64 == 0 && BK % (16 * WARPS_K) == 0, "TILE: depth");
static_assert(BM % (16 * WARPS_M) == 0 && BN % (16 * WARPS_N) == 0, "TILE: warps");
static_assert(THREADS % CHUNKS == 0 && BM % ROW_STEP == 0 && BN % ROW_STEP == 0, "TILE: copies");

TURBO_DEVICE TYPE* chunk_at(TYPE* tile, int row, int chunk) { return tile + row * BK + (chunk ^ (row & 7)) * 8; }

// One operand's part of a stage: ROWS rows, of which the first `rows_left` exist, and BK columns of which `k_left` do;
// the rest is zero. `from` is this thread's chunk of its first row; its other rows are `row_stride` elements apart.
template <int ROWS>
TURBO_DEVICE void load_tile(TYPE* tile, const TYPE* from, long long row_stride, int rows_left, int k_left) {
    const int first_row = static_cast<int>(threadIdx.x) / CHUNKS, chunk = static_cast<int>(threadIdx.x) % CHUNKS;
#pragma unroll
    for (int i = 0; i < ROWS / ROW_STEP; ++i) {
        const int row = first_row + i * ROW_STEP;
        const bool inside = row < rows_left && chunk * 8 < k_left;
        if constexpr (ALIGNED != 0) {
            cp_async_16(chunk_at(tile, row, chunk), from, inside);
        } else {
            Vec<TYPE, 8> values = {};
            for (int j = 0; j < 8; ++j)
                if (inside && chunk * 8 + j < k_left) values[j] = from[j];
            store_vec(chunk_at(tile, row, chunk), values);
        }
        from += row_stride;
    }
}

struct Fragments {
    unsigned a[ROW_TILES][4];
    unsigned b[COLUMN_TILES][2];
};

// Operands of one k step: activations are the row operand, weights the column operand.
TURBO_DEVICE void load_fragments(Fragments& f, TYPE* x_tile, TYPE* w_tile, int first_m, int first_n, int chunk) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < ROW_TILES; ++i)
        ldmatrix_x4(f.a[i], chunk_at(x_tile, first_m + i * 16 + lane % 16, chunk + lane / 16));
#pragma unroll
    for (int j = 0; j < COLUMN_TILES; j += 2) {
        unsigned r[4];
        ldmatrix_x4(r, chunk_at(w_tile, first_n + j * 8 + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
        f.b[j][0] = r[0], f.b[j][1] = r[1], f.b[j + 1][0] = r[2], f.b[j + 1][1] = r[3];
    }
}

// The block's tile of sums, WARPS_K partial ones in shared memory, to the output in vectors.
TURBO_DEVICE void write_tile(OUT* out, const float* sums, int m0, int n0, int M, int N) {
    constexpr int WIDTH = VEC<OUT>;
    for (int i = static_cast<int>(threadIdx.x); i < BM * BN / WIDTH; i += THREADS) {
        const int row = i / (BN / WIDTH), column = i % (BN / WIDTH) * WIDTH;
        Vec<float, WIDTH> sum = {};
#pragma unroll
        for (int part = 0; part < WARPS_K; ++part)
            axpy(sum, 1.0f, load_vec<float, WIDTH>(sums + (part * BM + row) * PITCH + column));
        if (m0 + row >= M || n0 + column >= N) continue;
        OUT* to = out + static_cast<long long>(m0 + row) * N + n0 + column;
        const Vec<OUT, WIDTH> values = from_float<OUT>(sum);
        if (N % WIDTH == 0) {
            store_vec(to, values);
        } else {
            for (int j = 0; j < WIDTH && n0 + column + j < N; ++j) to[j] = values[j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gemm_large(OUT* __restrict__ out, const TYPE* __restrict__ x,
                                                                 const TYPE* __restrict__ weight, int M, int N, int K) {
    TURBO_DYNAMIC_SHARED(TYPE, stages);
    // Blocks that run together take GROUP row tiles of the same columns, so that both operands are met in L2 again.
    const int row_tiles = (M + BM - 1) / BM, column_tiles = (N + BN - 1) / BN, id = static_cast<int>(blockIdx.x);
    const int first_row_tile = id / (GROUP * column_tiles) * GROUP, height = min(GROUP, row_tiles - first_row_tile);
    const int within = id % (GROUP * column_tiles);
    const int m0 = (first_row_tile + within % height) * BM, n0 = within / height * BN;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_k = warp / (WARPS_M * WARPS_N), first_m = warp % WARPS_M * (BM / WARPS_M);
    const int first_n = warp / WARPS_M % WARPS_N * (BN / WARPS_N);
    const int own_row = static_cast<int>(threadIdx.x) / CHUNKS, own_chunk = static_cast<int>(threadIdx.x) % CHUNKS;
    const TYPE* x_from = x + static_cast<long long>(m0 + own_row) * K + own_chunk * 8;
    const TYPE* w_from = weight + static_cast<long long>(n0 + own_row) * K + own_chunk * 8;

    const long long row_stride = static_cast<long long>(ROW_STEP) * K;
    int k_requested = 0, refill = 0, ready = 0;  // columns asked for so far; slots of the ring
    auto request = [&]() {
        if (k_requested < K) {
            TYPE* stage = stages + refill * STAGE;
            load_tile<BM>(stage, x_from, row_stride, M - m0, K - k_requested);
            load_tile<BN>(stage + BM * BK, w_from, row_stride, N - n0, K - k_requested);
            x_from += BK, w_from += BK;
        }
        cp_async_commit();
        k_requested += BK;
        refill = refill == STAGES - 1 ? 0 : refill + 1;
    };
    for (int i = 0; i < STAGES - 1; ++i) request();

    float d[ROW_TILES][COLUMN_TILES][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // stage `ready` has arrived; everybody is done with the one before, which is refilled now
        request();
        TYPE* x_tile = stages + ready * STAGE;
        ready = ready == STAGES - 1 ? 0 : ready + 1;
        Fragments fragments[2];
        load_fragments(fragments[0], x_tile, x_tile + BM * BK, first_m, first_n, 2 * warp_k);
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step + 1 < STEPS)
                load_fragments(fragments[(step + 1) % 2], x_tile, x_tile + BM * BK, first_m, first_n,
                               2 * (warp_k + (step + 1) * WARPS_K));
#pragma unroll
            for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; ++j)
                    mma_m16n8k16<TYPE>(d[i][j], fragments[step % 2].a[i], fragments[step % 2].b[j]);
        }
    }
    cp_async_wait<0>();
    __syncthreads();

    float* const sums = reinterpret_cast<float*>(stages);
#pragma unroll
    for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = first_m + i * 16 + h * 8 + lane / 4, column = first_n + j * 8 + lane % 4 * 2;
                store_vec(sums + (warp_k * BM + row) * PITCH + column,
                          Vec<float, 2>{{d[i][j][2 * h], d[i][j][2 * h + 1]}});
            }
    __syncthreads();
    write_tile(out, sums, m0, n0, M, N);
}
TURBO_EXPORT(gemm_large)
