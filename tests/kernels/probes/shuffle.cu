// One shuffle by every lane of a one-warp block; CALL is the intrinsic, TYPE what it moves.
#include "turbo.cuh"

extern "C" __global__ void shuffle(TYPE* out, const TYPE* in, int operand, int width) {
    const int lane = static_cast<int>(threadIdx.x);
    out[lane] = CALL(0xffffffffu, in[lane], operand, width);
}
TURBO_EXPORT(shuffle)
