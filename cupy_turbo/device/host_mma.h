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
    alignas(64) float a[16][16], b[16][8];
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
            for (unsigned k = 0; k < 8; ++k) b[8 * r + k][n / 2 + n % 2 * 4] = column[k];
        }
    for (unsigned m = 0; m < 16; ++m) {
        const unsigned lanes = m % 8 * 4, first = m / 8 * 2;
        Row even, odd, acc[2];
        memcpy(&even, &warp.operand[6 + first][lanes], 16);
        memcpy(reinterpret_cast<char*>(&even) + 16, &warp.operand[7 + first][lanes], 16);
        odd = Row{};
        acc[0] = even;
        acc[1] = odd;
        for (unsigned k = 0; k < 16; k += 2) {
            Row b0, b1;
            memcpy(&b0, b[k], sizeof b0);
            memcpy(&b1, b[k + 1], sizeof b1);
            acc[0] += a[m][k] * b0;
            acc[1] += a[m][k + 1] * b1;
        }
        const Row sum = acc[0] + acc[1];
        memcpy(&warp.result[first][lanes], &sum, 16);
        memcpy(&warp.result[first + 1][lanes], reinterpret_cast<const char*>(&sum) + 16, 16);
    }
}

} // namespace
