// Votes of a whole warp and of its halves, which vote at different times.
#include "turbo.cuh"

extern "C" __global__ void vote(unsigned* ballots, unsigned* halves, int* any, int* all, unsigned* matches,
                                const int* predicate, const int* keys) {
    const int lane = static_cast<int>(threadIdx.x);
    ballots[lane] = __ballot_sync(0xffffffffu, predicate[lane]);
    any[lane] = __any_sync(0xffffffffu, predicate[lane]);
    all[lane] = __all_sync(0xffffffffu, predicate[lane]);
    matches[lane] = __match_any_sync(0xffffffffu, keys[lane]);
    if (lane < 16) halves[lane] = __ballot_sync(0x0000ffffu, predicate[lane]);
    else halves[lane] = __ballot_sync(0xffff0000u, !predicate[lane]);
    __syncwarp();
}
TURBO_EXPORT(vote)
