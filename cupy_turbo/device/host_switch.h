// host_switch - leaving one stack for another, and what AddressSanitizer wants to be told of it.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
constexpr bool IS_ASAN = true;
#else
constexpr bool IS_ASAN = false;
#endif

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

struct Stack {
    const void* bottom = nullptr;
    size_t bytes = 0;
};

// Every switch is announced before it and confirmed behind it, on the new stack; `left` gets the bounds of the old one.
// AddressSanitizer's fake stacks stay off, so there is none to hand over. No variable here may lie on the stack: the
// poison around it would stay when the stack is left for good.
inline void announce_switch([[maybe_unused]] Stack to) {
#if defined(__SANITIZE_ADDRESS__)
    static __thread void* fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, to.bottom, to.bytes);
#endif
}
inline void confirm_switch([[maybe_unused]] Stack& left) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &left.bottom, &left.bytes);
#endif
}
// Frames that were left, not returned from, have not lifted the poison around their variables.
inline void forget_frames([[maybe_unused]] Stack stack) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack.bottom, stack.bytes);
#endif
}
