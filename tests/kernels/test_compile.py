"""Every kernel compiles for every supported architecture, without a GPU, and keeps its values in registers.

A kernel's header names the macros that it is compiled with, one or more lines of the form

    // Variants  TYPE=float|half|bf16 HEAD_DIM=64|128

each standing for all its combinations (`-` for a kernel without macros). All of them are compiled for sm_90, or, where
there are very many, enough for every pair of values to meet; for the other architectures, enough for every value to
appear.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cupy_turbo.core.errors import DeviceUnavailableError
from cupy_turbo.device import nvrtc
from cupy_turbo.device.source import KernelLibrary

LIBRARY = KernelLibrary()
ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
COMPLETE = "sm_90"
MOST_VARIANTS = 64  # of one kernel that are all compiled: about 10 seconds on two cores

# Bytes that a thread may write to and read back from its stack. A few belong to ptxas's taste from one architecture to
# the next; more slows every loop iteration, unless it was measured that the smaller tile without a spill is slower yet.
SPILL_ALLOWANCE = 64
MEASURED_ALLOWANCE: dict[str, int] = {}

# Every portable primitive once; what a kernel needs first is no time to learn that a header does not compile.
PRIMITIVES = """
#include "turbo.cuh"

template <class T>
TURBO_DEVICE void numbers(T* out, const T* in, float* scratch) {
    Vec<T, VEC<T>> a = load_vec<T, VEC<T>>(in), b = load_vec_stream<T, VEC<T>>(in + 64);
    Vec<float, VEC<T>> sum = to_float(a);
    axpy(sum, dot(a, b, 1.0f), b);
    store_vec(out, from_float<T>(sum));
    out[128] = from_float<T>(block_sum(to_float(in[3]), scratch) + block_max(to_float(in[threadIdx.x]), scratch));
}
template <class T>
TURBO_DEVICE void matrices(float* out, T* tile) {
    unsigned a[4], b[2];
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    ldmatrix_x4(a, tile + threadIdx.x * 8);
    ldmatrix_x2(b, tile + threadIdx.x * 8);
    mma_m16n8k16<T>(d, a, b);
    ldmatrix_x4_trans(a, tile + threadIdx.x * 8);
    ldmatrix_x2_trans(b, tile + threadIdx.x * 8);
    mma_m16n8k16<T>(d, a, b);
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3] + static_cast<float>(pack<T>(d[0], d[1]));
}
template <class T>
TURBO_DEVICE void integers(T* out, T* scratch) {
    out[threadIdx.x] = block_sum(out[threadIdx.x], scratch) + block_max(out[threadIdx.x], scratch);
}
extern "C" __global__ void __launch_bounds__(256)
    primitives(float* f, half* h, bf16* b, int* i, unsigned* u, unsigned long long* l, const float* in, int n) {
    __shared__ float scratch[32];
    __shared__ int scratch_int[32];
    __shared__ unsigned scratch_unsigned[32];
    __shared__ unsigned long long scratch_long[32];
    TURBO_DYNAMIC_SHARED(unsigned char, bytes);
    cp_async_16(bytes + threadIdx.x * 16, in + threadIdx.x * 4);
    cp_async_16(bytes + 4096 + threadIdx.x * 16, in + threadIdx.x * 4, static_cast<int>(threadIdx.x) < n);
    cp_async_commit();
    cp_async_wait<1>();
    cp_async_wait<0>();
    __syncthreads();
    numbers(f, in, scratch);
    numbers(h, h + 512, scratch);
    numbers(b, b + 512, scratch);
    matrices(f + 1024, reinterpret_cast<half*>(bytes));
    matrices(f + 2048, reinterpret_cast<bf16*>(bytes));
    integers(i, scratch_int);
    integers(u, scratch_unsigned);
    integers(l, scratch_long);
    const Philox4 draw = philox4x32(7ull, threadIdx.x, 1u, 2u, 3u);
    f[4096 + threadIdx.x] = uniform_open(draw.x) + uniform_open(draw.w);
    u[1] = __ballot_sync(~0u, n > 2) + __popc(n) + __ffs(n) + __clz(n) + __umulhi(3u, u[5]) + __match_any_sync(~0u, n);
    i[2] = __any_sync(~0u, n) + __all_sync(~0u, n) + __syncthreads_or(n) + __syncthreads_and(n);
    i[3] = __syncthreads_count(n) + max(n, 3) + min(n, 9);
    l[3] = __shfl_sync(~0u, l[4], 1) + __shfl_up_sync(~0u, l[4], 1) + __shfl_down_sync(~0u, l[4], 1);
    __syncwarp();
    atomicAdd(i, 1), atomicAdd(u, 1u), atomicAdd(l, 1ull), atomicAdd(f, 1.0f);
    atomicMax(i, 1), atomicMax(u, 1u), atomicMax(l, 1ull), atomicMin(i, 1), atomicMin(u, 1u), atomicMin(l, 1ull);
    atomicCAS(u, 1u, 2u), atomicExch(u, 1u), atomicOr(u, 1u);
    __threadfence();
    f[7] = expf(f[1]) + exp2f(f[2]) + logf(f[3]) + log2f(f[4]) + rsqrtf(f[5]) + sqrtf(f[6]);
    f[8] = fmaxf(f[8], f[9]) + fminf(f[1], TURBO_INF) + fmaf(f[1], f[2], f[3]);
    f[9] = __uint_as_float(__float_as_uint(f[3]) + __float_as_int(f[4]));
}
TURBO_EXPORT(primitives)
"""

Variant = tuple[tuple[str, str], ...]


def variants_of(text: str) -> list[Variant]:
    """All combinations of the macros that the `// Variants` lines of a kernel declare."""
    lines = re.findall(r"^// Variants +(.+?) *$", text, re.MULTILINE)
    found: list[Variant] = []
    for line in lines:
        macros = [] if line in ("-", "none") else [word.split("=", 1) for word in line.split()]
        found += itertools.product(*([(name, value) for value in values.split("|")] for name, values in macros))
    return found


def covering(variants: list[Variant], strength: int) -> list[Variant]:
    """Few variants in which all values, or with strength 2 all pairs of values, appear that appear in any."""
    tuples = {variant: set(itertools.combinations(variant, min(strength, len(variant)))) for variant in variants}
    missing = set().union(*tuples.values())
    chosen = []
    while missing:
        chosen.append(max(variants, key=lambda variant: len(tuples[variant] & missing)))
        missing -= tuples[chosen[-1]]
    return chosen


def variants_for(architecture: str, variants: list[Variant]) -> list[Variant]:
    if architecture == COMPLETE and len(variants) <= MOST_VARIANTS:
        return variants
    return covering(variants, 2 if architecture == COMPLETE else 1)


def compile_variant(text: str, name: str, architecture: str, variant: Variant) -> nvrtc.ResourceUsage:
    options = [f"-D{macro}={value}" for macro, value in variant]
    cubin, log = nvrtc.compile(text, f"{name}.cu", options, architecture, include=LIBRARY.include_folder)
    assert cubin.startswith(b"\x7fELF")
    assert "warning" not in log, log
    (usage,) = nvrtc.resource_usage(log)  # one entry a file
    assert usage.kernel == name
    return usage


@pytest.fixture(scope="module", autouse=True)
def _needs_nvrtc() -> None:
    try:
        nvrtc.version()
    except DeviceUnavailableError as error:
        if os.environ.get("CI"):
            raise  # CI installs NVRTC: there, a missing one is a fault
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        columns = " ".join(f"{architecture:>7}" for architecture in ARCHITECTURES)
        print(f"\n\nregisters a thread (most of all variants)\n{'':24}{columns}   spill, stack, shared bytes")
        print("\n".join(rows))


@pytest.mark.parametrize("name", LIBRARY.names())
def test_kernel_compiles_everywhere(name: str, table: list[str]) -> None:
    text = LIBRARY.read(name).text
    variants = variants_of(text)
    assert variants, f"{name}.cu has no line '// Variants  NAME=a|b'"
    jobs = [(arch, variant) for arch in ARCHITECTURES for variant in variants_for(arch, variants)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC releases the GIL
        usages = list(pool.map(lambda job: compile_variant(text, name, *job), jobs))
    registers = {
        arch: max(u.registers for (a, _), u in zip(jobs, usages, strict=True) if a == arch) for arch in ARCHITECTURES
    }
    spill = max(usage.spill_store_bytes + usage.spill_load_bytes for usage in usages)
    stack, shared = max(usage.stack_bytes for usage in usages), max(usage.static_shared_bytes for usage in usages)
    columns = " ".join(f"{registers[architecture]:7}" for architecture in ARCHITECTURES)
    table.append(f"{name:24}{columns}   {spill}, {stack}, {shared}")
    worst = [
        f"{arch} {dict(variant)}: {usage}"
        for (arch, variant), usage in zip(jobs, usages, strict=True)
        if usage.spill_store_bytes + usage.spill_load_bytes > MEASURED_ALLOWANCE.get(name, SPILL_ALLOWANCE)
    ]
    assert not worst, "registers are spilled:\n" + "\n".join(worst)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_primitive_compiles(architecture: str) -> None:
    compile_variant(PRIMITIVES, "primitives", architecture, ())


def test_variants_are_all_combinations_of_each_line() -> None:
    text = "// Variants  A=1|2 B=x\n// Variants  A=3 B=y|z\n"
    assert variants_of(text) == [
        (("A", "1"), ("B", "x")),
        (("A", "2"), ("B", "x")),
        (("A", "3"), ("B", "y")),
        (("A", "3"), ("B", "z")),
    ]
    assert variants_of("// Variants  -\n") == [()]
    assert variants_of("// Variants\n") == []


@pytest.mark.parametrize("strength", [1, 2])
def test_covering_variants_name_every_value_and_every_pair(strength: int) -> None:
    variants = variants_of("// Variants  A=1|2|3 B=x|y C=0|1 D=0|1\n// Variants  A=4 B=z\n")
    chosen = covering(variants, strength)
    assert len(chosen) < len(variants)
    for macros in itertools.chain.from_iterable(itertools.combinations(variant, strength) for variant in variants):
        assert any(set(macros) <= set(variant) for variant in chosen)


def test_a_kernel_without_macros_is_compiled_once() -> None:
    assert covering([()], 1) == covering([()], 2) == [()]
