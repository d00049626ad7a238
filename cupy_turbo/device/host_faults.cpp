// host_faults - a signal that an instruction of a kernel raised ends its launch, not the process.
//
// The handler only moves the faulting thread to turbo_faulted, on the stack that its fibers were entered from; the block
// is abandoned there as turbo_fail abandons it. Every other fault goes to whoever had the signal before. Under
// AddressSanitizer, which tells more about a fault, there is no handler.
#include <csignal>
#include <dlfcn.h>
#include <ucontext.h>

#include "host_fibers.h"

namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t ALTERNATE_STACK_BYTES = 64 << 10, NULL_PAGES = 64 << 10;

struct sigaction previous[NSIG];

// Not a kernel's. A fault comes again when its instruction is run again; a signal that was sent does not.
void pass_on(int signal, const siginfo_t& what) {
    sigaction(signal, &previous[signal], nullptr);
    if (what.si_code <= 0) raise(signal);
}

extern "C" [[noreturn]] void turbo_faulted() { machine->fail_faulted(); }

void on_fault(int signal, siginfo_t* what, void* context) {
    Machine* const own = machine;
    if (!own || !own->can_fail || what->si_code <= 0) return pass_on(signal, *what);
    own->can_fail = false;
    own->fault = {signal, what->si_code, what->si_addr, false};
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
    const uintptr_t stack = (reinterpret_cast<uintptr_t>(own->home) - 512) & ~uintptr_t(15);
#if defined(__x86_64__)
    own->fault.is_write = registers.gregs[REG_ERR] & 2;
    registers.gregs[REG_RIP] = reinterpret_cast<greg_t>(turbo_faulted);
    registers.gregs[REG_RSP] = static_cast<greg_t>(stack - sizeof(void*));  // as if a call had left a return address
#else
    registers.pc = reinterpret_cast<uintptr_t>(turbo_faulted);
    registers.sp = stack;
#endif
}

// A fiber's stack may be what is broken, so the handler runs on another: this thread's, or the one that it has already.
class AlternateStack {
public:
    AlternateStack() {
        stack_t now{};
        if (sigaltstack(nullptr, &now) || !(now.ss_flags & SS_DISABLE)) return;
        void* pages = mmap(nullptr, ALTERNATE_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return;
        own.ss_sp = pages;
        own.ss_size = ALTERNATE_STACK_BYTES;
        sigaltstack(&own, nullptr);
    }
    ~AlternateStack() {
        if (!own.ss_sp) return;
        stack_t now{}, none{};
        none.ss_flags = SS_DISABLE;
        if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == own.ss_sp) sigaltstack(&none, nullptr);
        munmap(own.ss_sp, own.ss_size);
    }
    AlternateStack(const AlternateStack&) = delete;
    AlternateStack& operator=(const AlternateStack&) = delete;

private:
    stack_t own{};
};

}  // namespace

#if defined(TURBO_SANITIZED)
namespace {

// The sanitizers' reports name the kernel and the line.
void name_place() {
    if (!machine || !machine->can_fail) return;
    const uint3 block = turbo_block.index, thread = turbo_thread->index;
    fprintf(stderr, "cupy_turbo: that was thread (%u, %u, %u) of block (%u, %u, %u)\n", thread.x, thread.y, thread.z,
            block.x, block.y, block.z);
}

// Each of the two libraries has its own list of what to call, under the same name.
void call_before_death(const char* symbol_of_library) {
    Dl_info library;
    if (!dladdr(dlsym(RTLD_DEFAULT, symbol_of_library), &library)) return;
    void* const handle = dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    const auto set = reinterpret_cast<void (*)(void (*)())>(dlsym(handle, "__sanitizer_set_death_callback"));
    if (set) set(name_place);
}

}  // namespace
#endif

// Once in a process, before its first launch.
extern "C" void turbo_catch_faults() {
#if defined(TURBO_SANITIZED)
    call_before_death("__asan_init");
    call_before_death("__ubsan_handle_add_overflow_abort");
#endif
    if (IS_ASAN) return;
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int signal : SIGNALS) sigaction(signal, &action, &previous[signal]);
}

// On every thread that runs blocks.
extern "C" void turbo_catch_faults_here() {
    if (!IS_ASAN) static thread_local AlternateStack stack;
}

void Machine::fail_faulted() {
    const auto address = reinterpret_cast<uintptr_t>(fault.address);
    const char* const use = fault.is_write ? "writes to" : "reads from";
    char reason[200] = "divides an integer by zero, or the lowest integer by -1 (SIGFPE)";
    if (fault.signal == SIGILL)
        snprintf(reason, sizeof reason, "reaches a trap, as compilers put where no defined program comes (SIGILL)");
    else if (fault.signal == SIGBUS)
        snprintf(reason, sizeof reason, "uses address %#zx, which has no memory behind it or is misaligned", address);
    else if (fault.signal == SIGSEGV && fault.code == SI_KERNEL)
        snprintf(reason, sizeof reason, "uses an address that no memory can have");
    else if (fault.signal == SIGSEGV)
        snprintf(reason, sizeof reason, "%s address %#zx, %s", use, address,
                 address < NULL_PAGES ? "off a null pointer (is an argument None?)" : "where it has no memory");
    fail(*static_cast<Thread*>(turbo_thread), reason);
}
