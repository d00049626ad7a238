// The functions of one float that kernels use, and the bit operations.
#include "turbo.cuh"

extern "C" __global__ void mathematics(float* out, int* bits, const float* x, const float* y, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        const float a = x[i], b = y[i];
        const float results[] = {expf(a),         exp2f(a),    logf(fabsf(a)), log2f(fabsf(a)), rsqrtf(fabsf(a)),
                                 sqrtf(fabsf(a)), fmaxf(a, b), fminf(a, b),    fmaf(a, b, 1.0f)};
        for (int j = 0; j < 9; ++j) out[j * count + i] = results[j];
        const unsigned word = __float_as_uint(a);
        const int found[] = {__popc(word), __ffs(static_cast<int>(word)), __clz(static_cast<int>(word)),
                             static_cast<int>(__umulhi(word, __float_as_uint(b))), __float_as_int(a)};
        for (int j = 0; j < 5; ++j) bits[j * count + i] = found[j];
    }
}
TURBO_EXPORT(mathematics)
