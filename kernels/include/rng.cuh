// rng - counter-based random numbers: the same (key, counter) gives the same draw on every device, in any order.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox4x32-10; constants of Random123).
#pragma once

struct Philox4 {
    unsigned x, y, z, w;
};

// Four independent 32-bit words. Key words are the low and the high half of `key`.
TURBO_DEVICE Philox4 philox4x32(unsigned long long key, unsigned c0, unsigned c1, unsigned c2, unsigned c3) {
    unsigned key_low = static_cast<unsigned>(key), key_high = static_cast<unsigned>(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ key_low;
        c1 = low1;
        c2 = high0 ^ c3 ^ key_high;
        c3 = low0;
        key_low += 0x9E3779B9u;   // golden ratio
        key_high += 0xBB67AE85u;  // sqrt(3) - 1
    }
    return Philox4{c0, c1, c2, c3};
}

// 23 bits to the middle of their interval: in [2^-24, 1 - 2^-24], so logarithms of u and of 1 - u are finite. Exact.
TURBO_DEVICE float uniform_open(unsigned bits) {
    return (static_cast<float>(bits >> 9) + 0.5f) * 1.1920928955078125e-07f;
}
