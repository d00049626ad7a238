// scale - y = by * x + offset, with one parameter of each kind.
#include "turbo.cuh"

extern "C" __global__ void scale(TYPE* y, const TYPE* x, int n, float by, unsigned long long offset) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = from_float<TYPE>(by * to_float(x[i]) + static_cast<float>(offset >> 32));
}
TURBO_EXPORT(scale)
