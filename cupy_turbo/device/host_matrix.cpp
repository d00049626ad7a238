// host_matrix - ldmatrix, mma.m16n8k16 and cp.async.
#include "host_meeting.h"

namespace {

void load_matrices(Warp& warp, unsigned count, bool transposed) {
    for (unsigned i = 0; i < count; ++i)
        for (unsigned row = 0; row < 8; ++row) {
            const void* source = warp.row[8 * i + row];
            if (!transposed) {
                memcpy(&warp.result[i][4 * row], source, 16);
                continue;
            }
            unsigned short elements[8];
            memcpy(elements, source, 16);
            // Element (row, g) goes to lane 4 g + row / 2, half row % 2.
            for (unsigned g = 0; g < 8; ++g)
                memcpy(reinterpret_cast<char*>(&warp.result[i][4 * g + row / 2]) + row % 2 * 2, &elements[g], 2);
        }
}

// The product behind mma.m16n8k16. operand[0..3], [4..5] and [6..9] hold the registers of a, b and d by lane; result[0..3]
// gets the new d. In that order four neighbouring lanes of a register hold eight neighbouring elements of a row, so rows
// are copied, not gathered. Columns of D are kept as 0 2 4 6 1 3 5 7: then a row is the lanes' d[0] followed by d[1].
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

extern "C" {

void turbo_ldmatrix(unsigned* registers, const void* row, int count, bool transposed) {
    Warp& warp = *self().warp;
    const unsigned lane = self().lane, matrices = static_cast<unsigned>(count);
    require_whole_warp(warp);
    if (lane < 8 * matrices) {
        if (reinterpret_cast<uintptr_t>(row) % 16) turbo_fail("gives ldmatrix a row that is not 16-byte aligned");
        if (!machine->is_shared(row, 16)) turbo_fail("gives ldmatrix a row outside the block's shared memory");
    }
    warp.row[lane] = row;
    meet(warp, (transposed ? LDMATRIX_TRANSPOSED : LDMATRIX) + (matrices << 8), ALL_LANES,
         [&](unsigned) { load_matrices(warp, matrices, transposed); });
    for (unsigned i = 0; i < matrices; ++i) registers[i] = warp.result[i][lane];
}

void turbo_mma(float* d, const unsigned* a, const unsigned* b, bool is_bf16) {
    Warp& warp = *self().warp;
    const unsigned lane = self().lane;
    require_whole_warp(warp);
    for (int i = 0; i < 4; ++i) warp.operand[i][lane] = a[i];
    for (int i = 0; i < 2; ++i) warp.operand[4 + i][lane] = b[i];
    for (int i = 0; i < 4; ++i) warp.operand[6 + i][lane] = turbo_bit_cast<unsigned>(d[i]);
    meet(warp, is_bf16 ? MMA_BF16 : MMA, ALL_LANES, [&](unsigned) {
        if (is_bf16) multiply<bf16>(warp);
        else multiply<half>(warp);
    });
    for (int i = 0; i < 4; ++i) d[i] = turbo_bit_cast<float>(warp.result[i][lane]);
}

void turbo_cp_async(void* shared, const void* global, bool valid) {
    if ((reinterpret_cast<uintptr_t>(shared) | (valid ? reinterpret_cast<uintptr_t>(global) : 0)) % 16)
        turbo_fail("gives cp_async_16 an address that is not 16-byte aligned");
    if (!machine->is_shared(shared, 16))
        turbo_fail("gives cp_async_16 a destination outside the block's shared memory");
    PendingCopies& pending = machine->copies();
    if (pending.last - pending.first == PendingCopies::CAPACITY) pending.run_oldest();
    pending.copies[pending.last++ % PendingCopies::CAPACITY] = {shared, valid ? global : nullptr, pending.group};
}
void turbo_cp_async_commit() { ++machine->copies().group; }
void turbo_cp_async_wait(int allowed) {
    PendingCopies& pending = machine->copies();
    // Unsigned distance, because group numbers may wrap.
    while (pending.first != pending.last) {
        const unsigned age = pending.group - pending.copies[pending.first % PendingCopies::CAPACITY].group;
        if (age <= static_cast<unsigned>(allowed)) break;
        pending.run_oldest();
    }
}

}  // extern "C"
