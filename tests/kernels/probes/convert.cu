// Conversions of single elements, of a vector of eight and of packed pairs.
#include "turbo.cuh"

extern "C" __global__ void convert(TYPE* narrow, TYPE* narrow_vec, unsigned* packed, float* wide, float* wide_vec,
                                   const float* floats, const TYPE* elements, int count) {
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8; i < count;
         i += static_cast<int>(gridDim.x * blockDim.x) * 8) {
        for (int j = i; j < i + 8; ++j) {
            narrow[j] = from_float<TYPE>(floats[j]);
            wide[j] = to_float(elements[j]);
            packed[j] = pack<TYPE>(floats[j], -floats[j]);
        }
        store_vec(narrow_vec + i, from_float<TYPE>(load_vec<float, 8>(floats + i)));
        store_vec(wide_vec + i, to_float(load_vec<TYPE, 8>(elements + i)));
    }
}
TURBO_EXPORT(convert)
