// host_mma - the product behind mma.m16n8k16, on the fragments that 32 lanes have deposited.
//
// operand[0..3], [4..5] and [6..9] hold the registers of a, b and d by lane; result[0..3] gets the new d. In that order
// four neighbouring lanes of a register hold eight neighbouring elements of a row, so rows are copied, not gathered.
#pragma once

namespace {

// Columns of D are kept as 0 2 4 6 1 3 5 7: then a row is the lanes' d[0] followed by their d[1].
template <class T>
void multiply(Warp& warp) {
    using Row = TurboLanes<8>::floats;
    alignas(64) float a[16][16], columns[8][16], b[16][8];
    for (unsigned g = 0; g < 8; ++g)
        for (unsigned r = 0; r < 4; ++r) {
            Vec<T, 8> part;
            memcpy(&part, &warp.operand[r][4 * g], 16);
            const Row row = turbo_lanes(part);
            memcpy(&a[g + r % 2 * 8][r / 2 * 8], &row, sizeof row);
        }
    for (unsigned n = 0; n < 8; ++n)
        for (unsigned r = 0; r < 2; ++r) {
            Vec<T, 8> part;
            memcpy(&part, &warp.operand[4 + r][4 * n], 16);
            const Row column = turbo_lanes(part);
            memcpy(&columns[n / 2 + n % 2 * 4][8 * r], &column, sizeof column);
        }
    for (unsigned k = 0; k < 16; ++k)
        for (unsigned n = 0; n < 8; ++n) b[k][n] = columns[n][k];
    for (unsigned half = 0; half < 2; ++half) {  // rows 0-7, then 8-15: as many accumulators as registers can hold
        Row acc[8];
#pragma GCC unroll 8
        for (unsigned g = 0; g < 8; ++g) {
            memcpy(&acc[g], &warp.operand[6 + 2 * half][4 * g], 16);
            memcpy(reinterpret_cast<char*>(&acc[g]) + 16, &warp.operand[7 + 2 * half][4 * g], 16);
        }
#pragma GCC unroll 2
        for (unsigned k = 0; k < 16; ++k) {
            Row row;
            memcpy(&row, b[k], sizeof row);
#pragma GCC unroll 8
            for (unsigned g = 0; g < 8; ++g) acc[g] += a[8 * half + g][k] * row;
        }
#pragma GCC unroll 8
        for (unsigned g = 0; g < 8; ++g) {
            memcpy(&warp.result[2 * half][4 * g], &acc[g], 16);
            memcpy(&warp.result[2 * half + 1][4 * g], reinterpret_cast<const char*>(&acc[g]) + 16, 16);
        }
    }
}

}  // namespace
