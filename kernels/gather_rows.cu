// gather_rows - chosen rows of a matrix, such as the last token of every sequence before the LM head.
//
// Math      out[m] = x[rows[m]];  a row outside [0, count), such as -1 for padding, gives zeros.
// Shapes    out: (M, hidden) TYPE;  x: (count, hidden) TYPE;  rows: (M,) int32
// Variants  TYPE=float|half|bf16
// Launch    grid (M,)  block (threads,), threads <= 1024; any number gives the same result
// Staging   nothing
// Cost      reads and writes M * hidden elements; bound by memory.
// Source    TurboMind computes logits of selected rows only.  Oracle: testing/reference.py::gather_rows
#include "turbo.cuh"

template <int N>
TURBO_DEVICE void copy_row(TYPE* out, const TYPE* source, int hidden) {
    for (int i = N * threadIdx.x; i < hidden; i += N * blockDim.x) {
        Vec<TYPE, N> values = {};
        if (source) values = load_vec<TYPE, N>(source + i);
        store_vec(out + i, values);
    }
}

extern "C" __global__ void gather_rows(TYPE* __restrict__ out, const TYPE* __restrict__ x, const int* __restrict__ rows,
                                       int hidden, int count) {
    const int row = rows[blockIdx.x];
    TYPE* const target = out + static_cast<long long>(blockIdx.x) * hidden;
    const TYPE* const source = row >= 0 && row < count ? x + static_cast<long long>(row) * hidden : nullptr;
    if (hidden % VEC<TYPE> == 0) copy_row<VEC<TYPE>>(target, source, hidden);
    else copy_row<1>(target, source, hidden);
}
TURBO_EXPORT(gather_rows)
