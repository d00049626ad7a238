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

#include "turbo.cuh"

constexpr unsigned MAX_THREADS = 1024, MAX_WARPS = 32, ALL_LANES = 0xffffffffu;
constexpr size_t STACK_BYTES = 64 << 10, PAGE = 4096;

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
    unsigned long long seed;                         // 0: threads and blocks in order
    unsigned long long static_module, static_bytes;  // the kernel's thread-local segment: its __shared__ variables
    unsigned long long num_blocks, chunk;
    unsigned long long stride, first;  // block number i is block (first + i * stride) % num_blocks
    std::atomic<unsigned long long> next{0};
    std::atomic<bool> failed{false};
    std::atomic_flag reported = ATOMIC_FLAG_INIT;
    Report* report;
};

// Saves the callee-saved registers on the current stack and its pointer in `save`, then continues on another stack: in
// turbo_fiber if that one is fresh, else where it was left. turbo_resume saves nothing and is jumped to.
//
// There is one call of turbo_switch in which fibers wait, and a fresh fiber is entered by a jump: so the processor's
// return stack, filled while the lanes of a warp start, predicts their returns when they go on. It halves the cost.
extern "C" void turbo_switch(void** save, void* resume, bool is_fresh) noexcept;
extern "C" [[noreturn]] void turbo_fiber();
#if defined(__x86_64__)
asm(R"(
.text
.type turbo_switch, @function
turbo_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    testb %dl, %dl
    jne turbo_fiber
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size turbo_switch, . - turbo_switch
)");
[[noreturn]] inline __attribute__((always_inline)) void turbo_resume(void* resume) {
    asm volatile(R"(
    movq %0, %%rsp
    popq %%r15
    popq %%r14
    popq %%r13
    popq %%r12
    popq %%rbx
    popq %%rbp
    ret
)" ::"r"(resume)
                 : "memory");
    __builtin_unreachable();
}
#elif defined(__aarch64__)
asm(R"(
.text
.type turbo_switch, %function
turbo_switch:
    sub sp, sp, #160
    stp d8, d9, [sp]
    stp d10, d11, [sp, #16]
    stp d12, d13, [sp, #32]
    stp d14, d15, [sp, #48]
    stp x19, x20, [sp, #64]
    stp x21, x22, [sp, #80]
    stp x23, x24, [sp, #96]
    stp x25, x26, [sp, #112]
    stp x27, x28, [sp, #128]
    stp x29, x30, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    tbz w2, #0, turbo_restore
    b turbo_fiber
.local turbo_restore
turbo_restore:
    ldp d8, d9, [sp]
    ldp d10, d11, [sp, #16]
    ldp d12, d13, [sp, #32]
    ldp d14, d15, [sp, #48]
    ldp x19, x20, [sp, #64]
    ldp x21, x22, [sp, #80]
    ldp x23, x24, [sp, #96]
    ldp x25, x26, [sp, #112]
    ldp x27, x28, [sp, #128]
    ldp x29, x30, [sp, #144]
    add sp, sp, #160
    ret
.size turbo_switch, . - turbo_switch
)");
[[noreturn]] inline __attribute__((always_inline)) void turbo_resume(void* resume) {
    asm volatile("mov sp, %0\n\tb turbo_restore" ::"r"(resume) : "memory");
    __builtin_unreachable();
}
#else
#error "the host device knows how to switch fibers on x86-64 and aarch64 only"
#endif

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
    [[noreturn]] __attribute__((always_inline)) void run_fiber();

private:
    unsigned ready_warps = 0, alive = 0, warp_in_turn = 0;
    bool is_shuffled = false;
    unsigned num_free_stacks = 0, num_used_stacks = 0, new_stack = 0;
    unsigned free_stacks[MAX_THREADS];
    unsigned long long block = 0, block_stop = 0, random = 0;
    void* home = nullptr;
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
    void report(uint3 thread, const char* reason);
    [[noreturn]] void fail_stuck();
    unsigned draw();
};

extern __thread Machine* machine __attribute__((tls_model("initial-exec")));
