// async_copy - 16 bytes from global to shared memory without passing registers (cp.async, sm_80 and up).
//
// Both addresses are 16-byte aligned. With `valid` false the destination becomes zeros and the source is not read.
// Copies belong to the group of the next commit; cp_async_wait<N> waits until at most N groups of this thread are
// pending. Other threads see the bytes only after that wait and a barrier. The host device moves the bytes as late as
// that allows, so a missing wait shows up as poison.
#pragma once

#if TURBO_CUDA

TURBO_DEVICE unsigned turbo_shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

TURBO_DEVICE void cp_async_16(void* shared, const void* global, bool valid = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(turbo_shared_address(shared)), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
TURBO_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
TURBO_DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#else

TURBO_DEVICE void cp_async_16(void* shared, const void* global, bool valid = true) {
    turbo_cp_async(shared, global, valid);
}
TURBO_DEVICE void cp_async_commit() { turbo_cp_async_commit(); }
template <int N>
TURBO_DEVICE void cp_async_wait() {
    turbo_cp_async_wait(N);
}

#endif
