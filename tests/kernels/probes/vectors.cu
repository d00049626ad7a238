// Arithmetic of Vec<TYPE, WIDTH>: one vector a thread.
#include "turbo.cuh"

extern "C" __global__ void vectors(float* dots, float* axpys, float* products, float* sums, TYPE* copies, const TYPE* a,
                                   const TYPE* b, float scale) {
    const int i = static_cast<int>(threadIdx.x);
    const auto x = load_vec<TYPE, WIDTH>(a + i * WIDTH);
    const auto y = load_vec_stream<TYPE, WIDTH>(b + i * WIDTH);
    dots[i] = dot(x, y, 1.0f);
    Vec<float, WIDTH> acc = to_float(y), product = to_float(x);
    axpy(acc, scale, x);
    store_vec(axpys + i * WIDTH, acc);
    multiply_add(product, x, y);
    store_vec(products + i * WIDTH, product);
    sums[i] = lane_sum(product);
    store_vec(copies + i * WIDTH, x);
}
TURBO_EXPORT(vectors)
