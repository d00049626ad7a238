// sample - draw every row's next token, by temperature, top-k, top-p and min-p.
//
// Math      s = logits / temperature;  keep the top_k greatest; of those, the fewest greatest whose probability
//           reaches top_p; of those, the ones at least min_p times as likely as the likeliest. Draw i among the kept
//           tokens with probability ~ exp(s[i]): the greatest exp(s[i] - max s) / E[i] wins, E[i] exponential.
//           Temperature below 1e-5: argmax.
// Shapes    tokens, sample_slots, sample_positions: (rows,) int32;  logits: (rows, vocab) float; finished, top_k (<=
//           0: off): (slots,) int32;  temperature, top_p (>= 1: off), min_p (0: off): (slots,) float; seed: (slots,)
//           uint64.  tokens[r] is -1 for a masked row, -2 as in argmax
// Variants  -
// Exact     Order and steps are those of transformers' warpers. Tokens that tie with the last one kept are kept, and
//           the likeliest always is. No float is summed: counts and masses (exp scaled by 2^44) are integers, so
//           neither thread order nor block size matters. E[i] is word i % 4 of Philox(key seed, counter (position, i
//           / 4)): the draw depends on seed, position and logits, never on row or batch.
// Masked    rows whose slot is -1 or has finished
// Launch    grid (rows,)  block (threads,), a power of two from 32 to 1024
// Staging   a histogram of 2048 bins in shared memory: three passes over the row find a threshold, 11, 11 and 10 bits
//           of it at a time
// Cost      reads the row 2 times, and 3 times more for each of top-k and top-p; the L2 cache serves all but the
//           first.
// Source    radix select on ordered float bits; exponential race = Gumbel-max (Maddison et al. 2014); Philox: Salmon
//           et al. 2011.  Oracle: testing/reference_sampling.py::sampling_weights, race_speeds
#include "turbo.cuh"
#include "logits.cuh"

constexpr int BINS = 2048;
constexpr float UNIT_MASS = 17592186044416.0f;  // 2^44: 2^18 tokens of the greatest weight, 1, still fit 64 bits

struct Row {
    const float* logits;
    int limit;
    bool aligned;
    float top, sharpness;  // the greatest logit, and 1 / temperature

    TURBO_DEVICE Vec<float, 4> load(int first) const { return load_logits(logits, first, limit, aligned); }
    // exp(logit / temperature) against the greatest; that one is 1 even if it is infinite.
    TURBO_DEVICE float weight(float logit) const { return logit == top ? 1.0f : expf((logit - top) * sharpness); }
};

// A bin is a 64-bit sum in two words, because shared memory adds 32 bits at once and 64 only in a loop.
struct Histogram {
    unsigned low[BINS], high[BINS];
    unsigned long long warp_totals[32], rest;
    unsigned bin;

    TURBO_DEVICE void add(unsigned index, unsigned long long weight) {
        const unsigned part = static_cast<unsigned>(weight), before = atomicAdd(&low[index], part);
        const unsigned upper = static_cast<unsigned>(weight >> 32) + (before + part < before ? 1 : 0);  // the carry
        if (upper) atomicAdd(&high[index], upper);
    }
    TURBO_DEVICE unsigned long long at(int index) const {
        return static_cast<unsigned long long>(high[index]) << 32 | low[index];
    }
};

// Sum of `own` over the threads after this one; `total` becomes the sum over all. Has a barrier.
TURBO_DEVICE unsigned long long sum_of_later(unsigned long long own, unsigned long long* warp_totals,
                                             unsigned long long& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    unsigned long long from_here = own;
    for (int offset = 1; offset < 32; offset *= 2) {
        const unsigned long long other = __shfl_down_sync(0xffffffffu, from_here, offset);
        if (lane + offset < 32) from_here += other;
    }
    if (lane == 0) warp_totals[warp] = from_here;
    __syncthreads();
    unsigned long long later = from_here - own;
    total = 0;
    for (int i = 0; i < num_warps; ++i) {
        total += warp_totals[i];
        if (i > warp) later += warp_totals[i];
    }
    return later;
}

// Weigh the tokens whose key is at least `floor` and begins with `prefix`, by the key's next bits from `shift` up.
TURBO_DEVICE void fill_histogram(const Row& row, unsigned floor, bool by_mass, unsigned prefix, int shift, int width,
                                 Histogram& histogram) {
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) histogram.low[bin] = histogram.high[bin] = 0;
    __syncthreads();
    for (int first = 4 * threadIdx.x; first < row.limit; first += 4 * blockDim.x) {
        const Vec<float, 4> values = row.load(first);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned key = order_bits(values[i]);
            if (key < floor || static_cast<unsigned long long>(key) >> (shift + width) != prefix) continue;
            const float mass = by_mass ? row.weight(values[i]) * UNIT_MASS : 1.0f;
            histogram.add(key >> shift & ((1u << width) - 1), static_cast<unsigned long long>(mass));
        }
    }
    __syncthreads();
}

// The greatest key t for which the tokens with keys >= t reach the target: `amount` tokens, or that share of the mass
// of all tokens with keys >= floor.
TURBO_DEVICE unsigned select_key(const Row& row, unsigned floor, bool by_mass, double amount, Histogram& histogram) {
    unsigned prefix = 0;
    unsigned long long target = 0;
    for (int shift = 21, width = 11; width > 0; width = shift < 11 ? shift : 11, shift -= width) {
        fill_histogram(row, floor, by_mass, prefix, shift, width, histogram);
        const int per_thread = BINS / blockDim.x, start = threadIdx.x * per_thread;
        unsigned long long own = 0, total;
        for (int bin = start; bin < start + per_thread; ++bin) own += histogram.at(bin);
        unsigned long long greater = sum_of_later(own, histogram.warp_totals, total);
        if (target == 0) {  // the first pass weighs everything
            const double wanted = by_mass ? amount * static_cast<double>(total) : amount;
            target = static_cast<unsigned long long>(wanted);
            if (static_cast<double>(target) < wanted) ++target;
            target = target < 1 ? 1 : target > total ? total : target;
        }
        if (greater < target && target <= greater + own) {  // true in exactly one thread
            int bin = start + per_thread - 1;
            for (; greater + histogram.at(bin) < target; --bin) greater += histogram.at(bin);
            histogram.bin = bin;
            histogram.rest = target - greater;
        }
        __syncthreads();
        prefix = prefix << width | histogram.bin;
        target = histogram.rest;
    }
    return prefix;
}

// An exponential variate, exact to 24 bits where it is small: the winner of a race among many tokens is small.
TURBO_DEVICE float exponential(unsigned word) {
    const float u = fminf((static_cast<float>(word) + 0.5f) * 2.3283064365386963e-10f, 0.99999994f);
    return u < 0.00390625f ? u * (1.0f + u * (0.5f + u * 0.33333333f)) : -logf(1.0f - u);
}

// This thread's best of the kept tokens: (weight / exponential, inverted index).
TURBO_DEVICE unsigned long long race(const Row& row, unsigned floor, float min_p, unsigned long long seed,
                                     int position) {
    unsigned long long best = 0;
    for (int first = 4 * threadIdx.x; first < row.limit; first += 4 * blockDim.x) {
        const Vec<float, 4> values = row.load(first);
        float weights[4], greatest = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[i] = order_bits(values[i]) >= floor ? row.weight(values[i]) : 0.0f;
            if (weights[i] < min_p) weights[i] = 0.0f;
            greatest = fmaxf(greatest, weights[i]);
        }
        if (greatest == 0.0f) continue;
        const Philox4 draw = philox4x32(seed, position, first / 4, 0, 0);
        const unsigned words[4] = {draw.x, draw.y, draw.z, draw.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned speed = __float_as_uint(weights[i] / exponential(words[i]));
            if (weights[i] > 0.0f)
                best = max(best, static_cast<unsigned long long>(speed) << 32 | ~unsigned(first + i));
        }
    }
    return best;
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    sample(int* __restrict__ tokens, const float* __restrict__ logits, const int* __restrict__ sample_slots,
           const int* __restrict__ sample_positions, const int* __restrict__ finished,
           const float* __restrict__ temperature, const int* __restrict__ top_k, const float* __restrict__ top_p,
           const float* __restrict__ min_p, const unsigned long long* __restrict__ seed, int vocab, int vocab_limit) {
    __shared__ Histogram histogram;
    __shared__ unsigned long long scratch[32];
    const int slot = sample_slots[blockIdx.x];
    const bool masked = slot < 0 || finished[slot] != 0;
    Row row = {logits + static_cast<long long>(blockIdx.x) * vocab, masked ? 0 : vocab_limit, vocab % 4 == 0, 0.0f,
               1.0f};
    int token = greedy_token(block_max(greedy_key_of_row(row.logits, row.limit, row.aligned), scratch));
    if (masked) token = -1;
    if (token >= 0 && temperature[slot] >= 1e-5f) {  // the whole block takes the same branches
        row.top = row.logits[token];
        row.sharpness = 1.0f / temperature[slot];
        unsigned floor = 0;
        const int count = top_k[slot];
        const float share = top_p[slot];
        if (count > 0 && count < vocab_limit) floor = select_key(row, floor, false, count, histogram);
        if (share < 1.0f) floor = select_key(row, floor, true, share, histogram);
        const unsigned long long best =
            race(row, floor, fminf(min_p[slot], 1.0f), seed[slot], sample_positions[blockIdx.x]);
        token = static_cast<int>(~static_cast<unsigned>(block_max(best, scratch)));
    }
    if (threadIdx.x == 0) tokens[blockIdx.x] = token;
}
TURBO_EXPORT(sample)
