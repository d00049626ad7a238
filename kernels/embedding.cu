// embedding - the table's row of every token.
//
// Math      out[t] = table[id];  id = token_ids[t] if that is >= 0, else last_tokens[-token_ids[t] - 1]. An id
//           outside [0, vocab) gives zeros.
// Shapes    out: (tokens, hidden) TYPE;  table: (vocab, hidden) TYPE;  token_ids: (tokens,) int32; last_tokens:
//           (slots,) int32, what each slot sampled last: fed back without the host having seen it
// Variants  TYPE=float|half|bf16
// Launch    grid (tokens,)  block (threads,), threads <= 1024; any number gives the same result
// Staging   nothing
// Cost      reads and writes tokens * hidden elements; bound by memory.
// Source    Vaswani et al. 2017; feedback on the device as TurboMind's kPrepare.  Oracle:
//           testing/reference.py::embedding
#include "turbo.cuh"

template <int N>
TURBO_DEVICE void copy_row(TYPE* out, const TYPE* source, int hidden) {
    for (int i = N * threadIdx.x; i < hidden; i += N * blockDim.x) {
        Vec<TYPE, N> values = {};
        if (source) values = load_vec<TYPE, N>(source + i);
        store_vec(out + i, values);
    }
}

extern "C" __global__ void embedding(TYPE* __restrict__ out, const TYPE* __restrict__ table,
                                     const int* __restrict__ token_ids, const int* __restrict__ last_tokens, int hidden,
                                     int vocab, int slots) {
    const int given = token_ids[blockIdx.x], slot = -1 - given;
    const int id = given >= 0 ? given : slot < slots ? last_tokens[slot] : -1;
    TYPE* const row = out + static_cast<long long>(blockIdx.x) * hidden;
    const TYPE* const source = id >= 0 && id < vocab ? table + static_cast<long long>(id) * hidden : nullptr;
    if (hidden % VEC<TYPE> == 0) copy_row<VEC<TYPE>>(row, source, hidden);
    else copy_row<1>(row, source, hidden);
}
TURBO_EXPORT(embedding)
