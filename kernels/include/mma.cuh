// mma - 16-bit matrix fragments: ldmatrix and mma.m16n8k16, in the layouts of the PTX manual. Whole warps only.
//
// Lane l of an m16n8k16 fragment, g = l / 4, t = l % 4 (row, column; two neighbours a register, the lower one low):
//   a[0] (g, 2t)   a[1] (g + 8, 2t)   a[2] (g, 2t + 8)   a[3] (g + 8, 2t + 8)      A is 16 x 16, row-major
//   b[0] (2t, g)   b[1] (2t + 8, g)                                                B is 16 x 8 (k, n), column-major
//   d[0], d[1] (g, 2t), (g, 2t + 1)   d[2], d[3] (g + 8, 2t), (g + 8, 2t + 1)      D is 16 x 8 float
// ldmatrix: lanes 8i..8i+7 point at the eight 16-byte rows of matrix i (16-byte aligned, in shared memory); register i
// of lane l is elements 2t, 2t + 1 of row g of that matrix; with _trans, elements (2t, g), (2t + 1, g). x2 reads the
// addresses of lanes 0..15 only.
#pragma once

#if TURBO_CUDA

#define TURBO_LDMATRIX(suffix)                                                                                         \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" suffix ".shared.b16 {%0, %1, %2, %3}, [%4];"                          \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                                      \
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared_row)))                                    \
                 : "memory")
#define TURBO_LDMATRIX_X2(suffix)                                                                                      \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" suffix ".shared.b16 {%0, %1}, [%2];"                                  \
                 : "=r"(r[0]), "=r"(r[1])                                                                              \
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared_row)))                                    \
                 : "memory")

TURBO_DEVICE void ldmatrix_x4(unsigned (&r)[4], const void* shared_row) { TURBO_LDMATRIX(""); }
TURBO_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], const void* shared_row) { TURBO_LDMATRIX(".trans"); }
TURBO_DEVICE void ldmatrix_x2(unsigned (&r)[2], const void* shared_row) { TURBO_LDMATRIX_X2(""); }
TURBO_DEVICE void ldmatrix_x2_trans(unsigned (&r)[2], const void* shared_row) { TURBO_LDMATRIX_X2(".trans"); }

#undef TURBO_LDMATRIX
#undef TURBO_LDMATRIX_X2

#define TURBO_MMA(type)                                                                                                \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// d += a * b, accumulated in float. T is half or bf16.
template <class T>
TURBO_DEVICE void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
TURBO_DEVICE void mma_m16n8k16<half>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    TURBO_MMA("f16");
}
template <>
TURBO_DEVICE void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    TURBO_MMA("bf16");
}

#undef TURBO_MMA

#else

TURBO_DEVICE void ldmatrix_x4(unsigned (&r)[4], const void* shared_row) { turbo_ldmatrix(r, shared_row, 4, false); }
TURBO_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], const void* shared_row) {
    turbo_ldmatrix(r, shared_row, 4, true);
}
TURBO_DEVICE void ldmatrix_x2(unsigned (&r)[2], const void* shared_row) { turbo_ldmatrix(r, shared_row, 2, false); }
TURBO_DEVICE void ldmatrix_x2_trans(unsigned (&r)[2], const void* shared_row) {
    turbo_ldmatrix(r, shared_row, 2, true);
}

template <class T>
TURBO_DEVICE void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
TURBO_DEVICE void mma_m16n8k16<half>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    turbo_mma(d, a, b, false);
}
template <>
TURBO_DEVICE void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    turbo_mma(d, a, b, true);
}

#endif
