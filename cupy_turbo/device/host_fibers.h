// host_fibers - one block of CUDA threads on one OS thread: fibers, their stacks, and who runs next.
//
// A thread runs until it must wait, and the fiber that stops picks its successor itself: there is no scheduler to go
// through. A thread that never waits is called on the stack of the one before it, so a kernel without barriers pays for
// no switch at all.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <sys/mman.h>

#include "host_switch.h"
#include "turbo.cuh"

constexpr unsigned MAX_THREADS = 1024, MAX_WARPS = 32, ALL_LANES = 0xffffffffu;
#if !defined(TURBO_STACK_BYTES)
#define TURBO_STACK_BYTES (64 << 10)
#endif
constexpr size_t STACK_BYTES = TURBO_STACK_BYTES, PAGE = 4096;

using Entry = void (*)(const unsigned long long*);

// Filled in by the first failure of a launch.
struct Report {
    unsigned block[3], thread[3];
    char reason[232];
};

struct Launch {
    Entry entry;
    const unsigned long long* slots;
    uint3 grid, dim;
    unsigned shared_bytes, max_workers;
    unsigned long long seed;                        // 0: threads and blocks in order
    unsigned long long static_place, static_bytes;  // the kernel's __shared__ variables; see turbo_find_shared
    unsigned long long num_blocks, chunk;
    unsigned long long stride, first;  // block number i is block (first + i * stride) % num_blocks
    std::atomic<unsigned long long> next{0};
    std::atomic<bool> failed{false};
    std::atomic_flag reported = ATOMIC_FLAG_INIT;
    Report* report;
};

struct Warp;

struct Thread : TurboThread {
    Warp* warp;
    void* stopped;  // stack pointer of a thread that waits; null before it starts and after it ends
};

// Copies that cp.async has promised and a wait has not yet asked for.
struct PendingCopies {
    static constexpr unsigned CAPACITY = 64;
    struct Copy {
        void* shared;
        const void* global;  // null: fill with zeros
        unsigned group;
    };
    Copy copies[CAPACITY];
    unsigned first, last, group;

    void run_oldest() {
        const Copy& copy = copies[first++ % CAPACITY];
        if (copy.global) memcpy(copy.shared, copy.global, 16);
        else memset(copy.shared, 0, 16);
    }
};

struct Warp {
    unsigned lanes, ready, ended, waiting;  // sets of lanes; `waiting`: in a collective
    unsigned predicates;
    bool is_mixed;           // not all that wait gave the same tag
    unsigned long long tag;  // collective and mask of the first that waits
    alignas(64) unsigned long long tags[32];
    alignas(64) unsigned operand[10][32];
    alignas(64) unsigned result[4][32];
    alignas(64) unsigned long long operand64[32], result64[32];
    alignas(64) const void* row[32];
    alignas(64) int source[32];
};

struct Barrier {
    unsigned arrived, kind;
    int any, count, result;
    unsigned long long reduced;
};

// What a signal said of an instruction of a kernel.
struct Fault {
    int signal, code;
    const void* address;
    bool is_write;
};

// Everything that an OS thread needs to run blocks; used by one launch at a time.
class Machine {
public:
    Launch* launch = nullptr;
    Barrier barrier{};
    unsigned num_threads = 0, num_warps = 0;
    unsigned char *static_shared = nullptr, *dynamic_shared = nullptr;
    alignas(64) unsigned reduce_operand[MAX_THREADS];
    alignas(64) unsigned long long reduce_operand64[MAX_THREADS];
    Warp warps[MAX_WARPS];
    Thread threads[MAX_THREADS];
    volatile bool can_fail = false;  // whether what runs is on a fiber and may be left where it stands
    void* home = nullptr;            // stack pointer of the caller of the fibers
    Fault fault{};

    void run(Launch& work);
    void suspend();
    void release(Warp& warp, unsigned lanes) {
        warp.ready |= lanes;
        ready_warps |= static_cast<unsigned>(warp.ready != 0) << (&warp - warps);
    }
    void release_all_but(const Thread& self);
    PendingCopies& copies();
    bool is_shared(const void* p, size_t bytes) const;
    [[noreturn]] void fail(const Thread& culprit, const char* reason);
    [[noreturn]] void fail_faulted();
    [[noreturn]] __attribute__((always_inline)) void run_fiber();

private:
    unsigned ready_warps = 0, alive = 0, warp_in_turn = 0;
    bool is_shuffled = false;
    unsigned num_free_stacks = 0, num_used_stacks = 0, new_stack = 0;
    unsigned free_stacks[MAX_THREADS];
    unsigned long long block = 0, block_stop = 0, random = 0;
    Stack home_stack{}, left_stack{};  // known to a build for AddressSanitizer only
    unsigned char* stacks = nullptr;
    size_t dynamic_capacity = 0;
    PendingCopies* pending = nullptr;
    uint3 laid_out{0, 0, 0};

    void lay_out(uint3 dim);
    bool reserve(unsigned shared_bytes);
    bool next_block();
    void poison();
    Thread* take_next();
    Thread* take_any();
    void* take_stack();
    void announce(const void* resume) const;
    [[noreturn]] void go_home();
    void report(uint3 thread, const char* reason);
    [[noreturn]] void fail_stuck();
    unsigned draw();
};

extern __thread Machine* machine __attribute__((tls_model("initial-exec")));
