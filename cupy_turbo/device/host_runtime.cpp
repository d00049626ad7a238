// host_runtime - the pool of OS threads that runs launches, and the library's C interface for host_compiler.py.
#include <condition_variable>
#include <dlfcn.h>
#include <link.h>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <thread>
#include <vector>

#include "host_fibers.h"

extern "C" void turbo_catch_faults();

namespace {

// Idle workers poll this many times before they sleep: launches follow each other within microseconds.
constexpr int POLLS = 300;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

// The caller of a launch works too, on machine 0; the others wait for it to publish one.
class Pool {
public:
    void run(Launch& launch) {
        std::lock_guard<std::mutex> one_at_a_time(launching);
        unsigned long long others = launch.max_workers - 1;
        if (others > launch.num_blocks - 1) others = launch.num_blocks - 1;
        grow(static_cast<unsigned>(others) + 1);
        if (others) {
            bool must_wake;
            {
                std::lock_guard<std::mutex> guard(lock);
                current = &launch;
                wanted = static_cast<unsigned>(others);
                generation.fetch_add(1, std::memory_order_release);
                must_wake = sleepers > 0;
            }
            if (must_wake) wake.notify_all();
        }
        machines[0]->run(launch);
        if (!others) return;
        for (int i = 0; i < POLLS && active.load(std::memory_order_acquire); ++i) relax();
        std::unique_lock<std::mutex> guard(lock);
        wanted = 0;
        current = nullptr;
        finished.wait(guard, [this] { return active.load(std::memory_order_relaxed) == 0; });
    }

private:
    std::mutex launching, lock;
    std::condition_variable wake, finished;
    std::vector<std::unique_ptr<Machine>> machines;
    std::atomic<unsigned long> generation{0};
    std::atomic<unsigned> active{0};
    Launch* current = nullptr;
    unsigned wanted = 0, sleepers = 0;

    void grow(unsigned count) {
        while (machines.size() < count) {
            machines.emplace_back(new Machine);
            if (machines.size() > 1) std::thread(&Pool::work, this, machines.back().get()).detach();
        }
    }

    [[noreturn]] void work(Machine* own) {
        unsigned long seen = 0;
        for (;;) {
            for (int i = 0; i < POLLS && generation.load(std::memory_order_acquire) == seen; ++i) relax();
            std::unique_lock<std::mutex> guard(lock);
            ++sleepers;
            wake.wait(guard, [&] { return generation.load(std::memory_order_relaxed) != seen; });
            --sleepers;
            seen = generation.load(std::memory_order_relaxed);
            if (!wanted) continue;
            --wanted;
            active.fetch_add(1, std::memory_order_relaxed);
            Launch& launch = *current;
            guard.unlock();
            own->run(launch);
            guard.lock();
            if (active.fetch_sub(1, std::memory_order_release) == 1) finished.notify_one();
        }
    }
};

// Never destroyed: workers sleep in it when the process exits. A forked child has no workers, so it starts anew.
Pool* pool = nullptr;
std::once_flag created;

void renew_pool() { pool = new Pool; }

unsigned long long coprime_stride(unsigned long long seed, unsigned long long count) {
    const auto gcd = [](unsigned long long a, unsigned long long b) {
        while (b) {
            const unsigned long long rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    };
    unsigned long long stride = seed % count;
    while (gcd(stride, count) != 1) ++stride;
    return stride;
}

struct Segment {
    uintptr_t address;
    unsigned long long module, bytes;
};

int find_segment(dl_phdr_info* object, size_t, void* wanted) {
    Segment& segment = *static_cast<Segment*>(wanted);
    bool is_it = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& header = object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + header.p_vaddr;
        is_it |= header.p_type == PT_LOAD && segment.address - start < header.p_memsz;
    }
    if (!is_it) return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i)
        if (object->dlpi_phdr[i].p_type == PT_TLS) {
            segment.module = object->dlpi_tls_modid;
            segment.bytes = object->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

}  // namespace

struct Request {
    unsigned long long entry, static_place, static_bytes, seed;
    unsigned grid[3], block[3], shared_bytes, max_workers;
};

// Where a kernel's __shared__ variables are, and their bytes: the thread-local segment, by number, of the object that
// holds `entry`; in a build for AddressSanitizer, which does not guard those, the address of the section that holds them.
extern "C" __attribute__((visibility("default"))) void turbo_find_shared(const void* entry, unsigned long long* found) {
    if (IS_ASAN) {
        Dl_info object;
        dladdr(entry, &object);
        void* const handle = dlopen(object.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        const auto range = static_cast<unsigned char* const*>(dlsym(handle, "turbo_shared_range"));
        found[0] = reinterpret_cast<uintptr_t>(range[0]);
        found[1] = static_cast<unsigned long long>(range[1] - range[0]);
        dlclose(handle);
        return;
    }
    Segment segment{reinterpret_cast<uintptr_t>(entry), 0, 0};
    dl_iterate_phdr(find_segment, &segment);
    found[0] = segment.module;
    found[1] = segment.bytes;
}

// Run a grid; 0, or 1 with the first failure in `report`. Every block has ended, or will never run, on return.
extern "C" __attribute__((visibility("default"))) int turbo_launch(const Request* request,
                                                                   const unsigned long long* slots, Report* report) {
    std::call_once(created, [] {
        turbo_catch_faults();
        renew_pool();
        pthread_atfork(nullptr, nullptr, renew_pool);
    });
    Launch launch;
    launch.entry = reinterpret_cast<Entry>(request->entry);
    launch.slots = slots;
    launch.grid = {request->grid[0], request->grid[1], request->grid[2]};
    launch.dim = {request->block[0], request->block[1], request->block[2]};
    launch.shared_bytes = request->shared_bytes;
    launch.max_workers = IS_ASAN ? 1 : request->max_workers;  // see find_static_shared
    launch.seed = request->seed;
    launch.static_place = request->static_place;
    launch.static_bytes = request->static_bytes;
    launch.num_blocks = 1ull * launch.grid.x * launch.grid.y * launch.grid.z;
    launch.chunk = launch.num_blocks / (8ull * launch.max_workers) + 1;
    launch.stride = launch.seed ? coprime_stride(launch.seed, launch.num_blocks) : 1;
    launch.first = (launch.seed * 0x9E3779B97F4A7C15ull >> 32) % launch.num_blocks;
    launch.report = report;
    pool->run(launch);
    return launch.failed.load();
}
