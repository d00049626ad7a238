// host_fibers - see the header.
#include "host_fibers.h"

extern "C" {
__thread TurboThread* turbo_thread __attribute__((tls_model("initial-exec")));
__thread TurboBlock turbo_block __attribute__((tls_model("initial-exec")));
void* __tls_get_addr(unsigned long* module_and_offset);
void turbo_catch_faults_here();
}
__thread Machine* machine __attribute__((tls_model("initial-exec")));

// AddressSanitizer guards no thread-local variables, so a build for it makes them global and lets one thread run blocks.
static unsigned char* find_static_shared(const Launch& work) {
    if (!work.static_bytes) return nullptr;
    if (IS_ASAN) return reinterpret_cast<unsigned char*>(work.static_place);
    unsigned long address[2] = {static_cast<unsigned long>(work.static_place), 0};
    return static_cast<unsigned char*>(__tls_get_addr(address));
}

void Machine::run(Launch& work) {
    turbo_catch_faults_here();
    launch = &work;
    machine = this;
    lay_out(work.dim);
    if (!reserve(work.shared_bytes)) return report({0, 0, 0}, "finds no memory for the stacks of its block");
    static_shared = find_static_shared(work);
    is_shuffled = work.seed != 0;
    turbo_block.dim = work.dim;
    turbo_block.grid = work.grid;
    turbo_block.dynamic_shared = dynamic_shared;
    block = block_stop = 0;
    num_free_stacks = num_used_stacks = 0;
    if (!next_block()) return;
    Thread* first = take_next();
    turbo_thread = first;
    home_stack = {};
    void* const stack = take_stack();
    announce(stack);
    can_fail = true;
    turbo_switch(&home, stack, true);
    can_fail = false;
    confirm_switch(left_stack);
}

inline void Machine::announce(const void* resume) const {
    if (!IS_ASAN) return;
    const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(resume) - 1 - stacks);
    announce_switch({stacks + offset / STACK_BYTES * STACK_BYTES, STACK_BYTES});
}

void Machine::go_home() {
    announce_switch(home_stack);
    turbo_resume(home);
}

// Runs on every fiber: call threads until one that waits is next; its own stack takes over then.
inline void Machine::run_fiber() {
    confirm_switch(left_stack);
    if (IS_ASAN && !home_stack.bottom) home_stack = left_stack;
    const unsigned stack = new_stack;
    for (;;) {
        launch->entry(launch->slots);
        Thread& self = *static_cast<Thread*>(turbo_thread);
        self.stopped = nullptr;
        self.warp->ended |= 1u << self.lane;
        --alive;
        if (pending) pending[&self - threads].first = pending[&self - threads].last;
        Thread* next = take_next();
        if (!next) {
            if (alive) fail_stuck();
            if (!next_block()) go_home();
            next = take_next();
        }
        turbo_thread = next;
        if (next->stopped) {
            free_stacks[num_free_stacks++] = stack;
            announce(next->stopped);
            turbo_resume(next->stopped);
        }
    }
}

extern "C" void turbo_fiber() { machine->run_fiber(); }

void Machine::suspend() {
    Thread& self = *static_cast<Thread*>(turbo_thread);
    Thread* next = take_next();
    if (!next) fail_stuck();
    turbo_thread = next;
    const bool is_fresh = !next->stopped;
    void* const resume = is_fresh ? take_stack() : next->stopped;
    announce(resume);
    turbo_switch(&self.stopped, resume, is_fresh);
    confirm_switch(left_stack);
}

void Machine::release_all_but(const Thread& self) {
    for (unsigned w = 0; w < num_warps; ++w) warps[w].ready = warps[w].lanes;
    self.warp->ready &= ~(1u << self.lane);
    ready_warps = num_warps == 32 ? ALL_LANES : (1u << num_warps) - 1;
    if (!self.warp->ready) ready_warps &= ~(1u << (self.warp - warps));
}

// In order: the rest of the warp that ran last, then the next warp.
inline Thread* Machine::take_next() {
    Warp& warp = warps[warp_in_turn];
    if (!warp.ready || is_shuffled) return take_any();
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(warp.ready));
    warp.ready &= warp.ready - 1;
    if (!warp.ready) ready_warps &= ~(1u << warp_in_turn);
    return &threads[warp_in_turn * 32 + lane];
}

// With a seed: any ready warp, any of its lanes.
__attribute__((noinline)) Thread* Machine::take_any() {
    if (!ready_warps) return nullptr;
    const unsigned turn = is_shuffled ? draw() & 31 : warp_in_turn, first_lane = is_shuffled ? draw() & 31 : 0;
    const unsigned rotated = ready_warps >> turn | ready_warps << (-turn & 31);
    const unsigned w = (turn + static_cast<unsigned>(__builtin_ctz(rotated))) & 31;
    Warp& warp = warps[w];
    const unsigned lanes = warp.ready >> first_lane | warp.ready << (-first_lane & 31);
    const unsigned lane = (first_lane + static_cast<unsigned>(__builtin_ctz(lanes))) & 31;
    warp.ready &= ~(1u << lane);
    if (!warp.ready) ready_warps &= ~(1u << w);
    warp_in_turn = w;
    return &threads[w * 32 + lane];
}

unsigned Machine::draw() {  // xorshift64*, Vigna 2016
    random ^= random >> 12;
    random ^= random << 25;
    random ^= random >> 27;
    return static_cast<unsigned>(random * 0x2545F4914F6CDD1Dull >> 32);
}

// splitmix64's finaliser, Steele et al. 2014: neighbouring seeds start far apart.
static unsigned long long scramble(unsigned long long x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

bool Machine::next_block() {
    if (launch->failed.load(std::memory_order_relaxed)) return false;
    if (block == block_stop) {
        block = launch->next.fetch_add(launch->chunk, std::memory_order_relaxed);
        if (block >= launch->num_blocks) return false;
        block_stop = block + launch->chunk < launch->num_blocks ? block + launch->chunk : launch->num_blocks;
    }
    const unsigned long long number = (launch->first + block++ * launch->stride) % launch->num_blocks;
    const unsigned long long rows = number / launch->grid.x;
    turbo_block.index.x = static_cast<unsigned>(number % launch->grid.x);
    turbo_block.index.y = static_cast<unsigned>(rows % launch->grid.y);
    turbo_block.index.z = static_cast<unsigned>(rows / launch->grid.y);
    random = scramble(launch->seed + number * 0x9E3779B97F4A7C15ull) | 1;
    for (unsigned w = 0; w < num_warps; ++w) {
        warps[w].ready = warps[w].lanes;
        warps[w].ended = warps[w].waiting = 0;
    }
    ready_warps = num_warps == 32 ? ALL_LANES : (1u << num_warps) - 1;
    warp_in_turn = 0;
    alive = num_threads;
    barrier.arrived = 0;
    poison();
    return true;
}

// Also the redzones between variables, which nobody may touch; volatile, or it would become a checked memset.
__attribute__((no_sanitize("address"))) static void fill_guarded(volatile unsigned char* start, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) start[i] = 0xff;
}

// NaN in every floating type: what a block left behind must not look like a value to the next one.
void Machine::poison() {
    if (launch->shared_bytes) memset(dynamic_shared, 0xff, launch->shared_bytes);
    if (!static_shared) return;
    if (!IS_ASAN) memset(static_shared, 0xff, launch->static_bytes);
    else fill_guarded(static_shared, launch->static_bytes);
}

void Machine::lay_out(uint3 dim) {
    const bool is_same = dim.x == laid_out.x && dim.y == laid_out.y && dim.z == laid_out.z;
    if (is_same) {
        for (unsigned i = 0; i < num_threads; ++i) threads[i].stopped = nullptr;
        return;
    }
    laid_out = dim;
    num_threads = dim.x * dim.y * dim.z;
    num_warps = (num_threads + 31) / 32;
    for (unsigned i = 0; i < num_threads; ++i) {
        threads[i].index = {i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
        threads[i].lane = i % 32;
        threads[i].warp = &warps[i / 32];
        threads[i].stopped = nullptr;
    }
    for (unsigned w = 0; w < num_warps; ++w) warps[w].lanes = ALL_LANES;
    if (num_threads % 32) warps[num_warps - 1].lanes = (1u << num_threads % 32) - 1;
}

bool Machine::reserve(unsigned shared_bytes) {
    if (!stacks) {
        const size_t bytes = PAGE + MAX_THREADS * STACK_BYTES;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return false;
        mprotect(memory, PAGE, PROT_NONE);
        stacks = static_cast<unsigned char*>(memory) + PAGE;
    }
    // AddressSanitizer sees an overrun only where the memory ends.
    if (shared_bytes > dynamic_capacity || (IS_ASAN && shared_bytes != dynamic_capacity)) {
        operator delete[](dynamic_shared, std::align_val_t(128));
        dynamic_shared = static_cast<unsigned char*>(operator new[](shared_bytes, std::align_val_t(128)));
        dynamic_capacity = shared_bytes;
    }
    return true;
}

// The top of a free stack, as a function expects it on entry. Tops are staggered: equal offsets would compete for the
// same cache sets.
void* Machine::take_stack() {
    new_stack = num_free_stacks ? free_stacks[--num_free_stacks] : num_used_stacks++;
    unsigned char* top = stacks + (new_stack + 1) * STACK_BYTES - new_stack % 21 * 192;
#if defined(__x86_64__)
    top -= sizeof(void*);  // where a call would have left its return address
#endif
    return top;
}

PendingCopies& Machine::copies() {
    if (!pending) {
        can_fail = false;  // the allocator holds a lock
        pending = new PendingCopies[MAX_THREADS]();
        can_fail = true;
    }
    return pending[static_cast<Thread*>(turbo_thread) - threads];
}

bool Machine::is_shared(const void* p, size_t bytes) const {
    const auto inside = [=](const unsigned char* start, size_t size) {
        const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(p) - start);
        return start && offset < size && size - offset >= bytes;
    };
    return inside(dynamic_shared, launch->shared_bytes) || inside(static_shared, launch->static_bytes);
}

void Machine::report(uint3 thread, const char* reason) {
    launch->failed.store(true, std::memory_order_relaxed);
    if (launch->reported.test_and_set()) return;
    const uint3 index = turbo_block.index;
    *launch->report = {{index.x, index.y, index.z}, {thread.x, thread.y, thread.z}, {}};
    snprintf(launch->report->reason, sizeof launch->report->reason, "%s", reason);
}

void Machine::fail(const Thread& culprit, const char* reason) {
    can_fail = false;
    report(culprit.index, reason);
    // The block's fibers are abandoned where they stand, and with them what they had begun to copy.
    for (unsigned i = 0; pending && i < num_threads; ++i) pending[i].first = pending[i].last;
    forget_frames({stacks, num_used_stacks * STACK_BYTES});
    go_home();
}

// Nobody can run and somebody waits: name the first that does, and what it waits for.
void Machine::fail_stuck() {
    unsigned num_ended = num_threads - alive, num_at_barrier = barrier.arrived, i = 0;
    while (threads[i].warp->ended >> threads[i].lane & 1) ++i;
    const Thread& thread = threads[i];
    const bool in_warp = thread.warp->waiting >> thread.lane & 1;
    char reason[200];
    snprintf(reason, sizeof reason,
             "waits %s that not all its threads reach: of the block's %u threads %u have ended, %u wait at a barrier, "
             "%u in a warp collective",
             in_warp ? "in a warp collective" : "at a barrier", num_threads, num_ended, num_at_barrier,
             alive - num_at_barrier);
    fail(thread, reason);
}

extern "C" void turbo_fail(const char* reason) { machine->fail(*static_cast<Thread*>(turbo_thread), reason); }
