// gemm_small - product of a few activation rows with a weight matrix that is streamed once.
//
// Math      out[m,n] = sum_k x[m,k] * weight[n,k], accumulated in float
// Shapes    out: (M, N) OUT;  x: (M, K) TYPE;  weight: (N, K) TYPE;  all row-major, 16-byte aligned where ALIGNED
// Variants  TYPE=float|half|bf16 OUT=float TILE_M=1|8 ROWS=4 LANES=32 STAGES=4 ALIGNED=0|1
// Variants  TYPE=half|bf16 OUT=half|bf16 TILE_M=4 ROWS=1|4 LANES=32 STAGES=4|8 ALIGNED=1
// Launch    grid (blocks,), any number: groups of LANES threads share out the units of ROWS weight rows
//           block (threads,), a multiple of LANES, <= 128;  shared 16 * STAGES * ROWS bytes a thread if RING, else 0
// Staging   weights through a ring that each thread owns: it copies 16 bytes ahead by cp.async and reads back only its
//           own, so no barrier is needed and STAGES - 1 copies stay in flight across row ends. Activations from L1.
// Aliasing  none.   Determinism  a row's result depends on K and LANES only, not on M, N or the launch.
// Cost      reads N*K weights once a tile of TILE_M rows; bound by memory up to M of about 4 (16-bit) or 8 (float)
// Source    per-warp rings as in HazyResearch's low-latency Llama, with cp.async.  LANES=1 suits a CPU, where a warp
//           collective costs more than a row.  Oracle: testing/reference_gemm.py
#include "turbo.cuh"

constexpr bool RING = LANES == 32 && ALIGNED != 0;
constexpr int RESIDENT = TILE_M * ROWS > 16 ? 3 : 4;  // blocks of a processor that registers allow
constexpr int WIDTH = VEC<TYPE>;                      // elements of one load
constexpr int STRIDE = WIDTH * LANES;                 // elements of one load of the whole group
constexpr int CHAINS = LANES == 1 ? WIDTH : 1;        // partial sums of one result: a CPU wants a vector of them

using Fragment = Vec<TYPE, WIDTH>;

// WIDTH elements from `p` on, zero from element `left` on. Rows of odd length are not aligned and read one by one.
TURBO_DEVICE Fragment load_fragment(const TYPE* p, int left) {
    Fragment fragment = {};
    if (ALIGNED != 0 && left > 0) fragment = load_vec<TYPE, WIDTH>(p);
    if (ALIGNED == 0)
        for (int i = 0; i < WIDTH; ++i)
            if (i < left) fragment[i] = p[i];
    return fragment;
}

// Reads in order: ROWS rows of a unit, k from 0 to K in steps of STRIDE, `tiles` times over; then its next unit.
struct WeightStream {
    const TYPE* weight;
    TYPE* slots;  // this thread's part of slot 0
    int N, K, lane, tiles, end, step;
    int unit;  // these say what is requested next
    int tile = 0, k = 0;
    const TYPE* row[ROWS] = {};
    int slot = 0;  // what is read next

    TURBO_DEVICE void enter_unit() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            row[r] = weight + static_cast<long long>(min(unit * ROWS + r, N - 1)) * K + lane * WIDTH;
    }
    TURBO_DEVICE TYPE* at(int stage, int r) const { return slots + (stage * ROWS + r) * STRIDE; }
    TURBO_DEVICE void advance() {
        k += STRIDE;
        if (k < K) return;
        k = 0;
        if (++tile < tiles) return;
        tile = 0;
        unit += step;
        enter_unit();
    }
    TURBO_DEVICE void request(int stage) {
        const bool valid = unit < end && k + lane * WIDTH < K;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) cp_async_16(at(stage, r), valid ? row[r] + k : weight, valid);
        cp_async_commit();
        advance();
    }
    TURBO_DEVICE void start() {
        enter_unit();
        if constexpr (RING)
            for (int stage = 0; stage < STAGES - 1; ++stage) request(stage);
    }
    // The next fragment of each row.
    TURBO_DEVICE void next(Fragment (&w)[ROWS]) {
        if constexpr (RING) {
            cp_async_wait<STAGES - 2>();
#pragma unroll
            for (int r = 0; r < ROWS; ++r) w[r] = load_vec<TYPE, WIDTH>(at(slot, r));
            request(slot == 0 ? STAGES - 1 : slot - 1);
            slot = slot == STAGES - 1 ? 0 : slot + 1;
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) w[r] = load_fragment(row[r] + k, K - k - lane * WIDTH);
            advance();
        }
    }
};

TURBO_DEVICE void accumulate(Vec<float, 1>& partial, const Fragment& w, const Fragment& x) {
    partial[0] = dot(w, x, partial[0]);
}
TURBO_DEVICE void accumulate(Vec<float, WIDTH>& partial, const Fragment& w, const Fragment& x) {
    multiply_add(partial, w, x);
}

extern "C" __global__ void __launch_bounds__(128, RESIDENT)
    gemm_small(OUT* __restrict__ out, const TYPE* __restrict__ x, const TYPE* __restrict__ weight, int M, int N,
               int K) {
    TURBO_DYNAMIC_SHARED(TYPE, ring);
    const int lane = static_cast<int>(threadIdx.x) % LANES;
    const int units = (N + ROWS - 1) / ROWS, tiles = (M + TILE_M - 1) / TILE_M;
    const int groups = static_cast<int>(blockDim.x) / LANES * static_cast<int>(gridDim.x);
    // On a GPU neighbouring units go to different blocks, so that all processors finish together; a CPU prefetches best
    // from one long stretch of rows.
    const int group =
        static_cast<int>(threadIdx.x) / LANES * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    const int span = LANES == 1 ? (units + groups - 1) / groups : 1;
    const int first = group * span, step = LANES == 1 ? 1 : groups, end = LANES == 1 ? min(units, first + span) : units;
    TYPE* const slots = ring + (static_cast<int>(threadIdx.x) / LANES * STAGES * ROWS * LANES + lane) * WIDTH;
    WeightStream stream{weight, slots, N, K, lane, tiles, end, step, first};
    stream.start();
    for (int unit = first; unit < end; unit += step)
        for (int m0 = 0; m0 < M; m0 += TILE_M) {
            Vec<float, CHAINS> partial[TILE_M][ROWS] = {};
            for (int k = lane * WIDTH; k < K + lane * WIDTH; k += STRIDE) {
                Fragment w[ROWS];
                stream.next(w);
                if (k >= K) continue;
#pragma unroll
                for (int m = 0; m < TILE_M; ++m) {
                    const TYPE* x_row = x + static_cast<long long>(min(m0 + m, M - 1)) * K;
                    const Fragment x_k = load_fragment(x_row + k, K - k);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) accumulate(partial[m][r], w[r], x_k);
                }
            }
#pragma unroll
            for (int m = 0; m < TILE_M; ++m)
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    float sum = lane_sum(partial[m][r]);
                    if constexpr (LANES == 32) sum = warp_sum(sum);
                    if (lane == 0 && m0 + m < M && unit * ROWS + r < N)
                        out[static_cast<long long>(m0 + m) * N + unit * ROWS + r] = from_float<OUT>(sum);
                }
        }
}
TURBO_EXPORT(gemm_small)
