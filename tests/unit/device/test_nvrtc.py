"""NVRTC without a GPU: cubins, figures, errors that name what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cupy_turbo.core.errors import CompileError, DeviceUnavailableError
from cupy_turbo.device import nvrtc

SUM = 'extern "C" __global__ void sum(float* a, int n) { __shared__ float s[64]; s[n] = a[n]; a[1] = s[n + 1]; }'
# Sixty values that are all alive at the barrier.
HUNGRY = """
extern "C" __global__ void hungry(float* a, int n) {
    float v[60];
#pragma unroll
    for (int i = 0; i < 60; ++i) v[i] = a[i * n];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 60; ++i) a[i * n + 1] = v[i] * v[59 - i];
}
"""


@pytest.fixture
def _installed() -> None:
    try:
        nvrtc.version()
    except DeviceUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc._bindings.cache_clear()
    yield
    nvrtc._bindings.cache_clear()


@pytest.mark.usefixtures("_installed")
class TestCompile:
    def test_gives_a_cubin_and_the_figures_of_ptxas(self) -> None:
        cubin, log = nvrtc.compile(SUM, "sum.cu", (), "sm_80")
        assert cubin.startswith(b"\x7fELF")
        (usage,) = nvrtc.resource_usage(log)
        assert (usage.kernel, usage.static_shared_bytes, usage.spill_store_bytes) == ("sum", 256, 0)
        assert 1 <= usage.registers <= 255

    def test_spills_are_seen(self) -> None:
        (usage,) = nvrtc.resource_usage(nvrtc.compile(HUNGRY, "hungry.cu", ["--maxrregcount=32"], "sm_90")[1])
        assert usage.registers <= 32
        assert usage.spill_store_bytes > 0
        assert usage.spill_load_bytes > 0
        assert usage.stack_bytes > 0

    def test_figures_of_each_kernel_in_a_file(self) -> None:
        log = nvrtc.compile(SUM + HUNGRY, "both.cu", (), "sm_90")[1]
        assert {usage.kernel for usage in nvrtc.resource_usage(log)} == {"sum", "hungry"}

    def test_macros_and_the_include_folder(self, tmp_path: Path) -> None:
        (tmp_path / "size.cuh").write_text("constexpr int SIZE = BASE * 2;\n")
        source = '#include "size.cuh"\nstatic_assert(SIZE == 14, "");\n' + SUM
        nvrtc.compile(source, "sum.cu", ["-DBASE=7"], include=tmp_path)
        with pytest.raises(CompileError, match=r"size\.cuh"):
            nvrtc.compile(source, "sum.cu", ["-DBASE=7"])

    def test_an_error_names_file_line_architecture_and_macros(self) -> None:
        with pytest.raises(CompileError) as caught:
            nvrtc.compile(SUM.replace("a[n]", "b[n]"), "sum.cu", ["-DX=1"], "sm_90")
        for part in ("sum.cu(1)", "sm_90", "-DX=1", '"b" is undefined'):
            assert part in str(caught.value)

    def test_an_unknown_architecture_is_a_compile_error(self) -> None:
        with pytest.raises(CompileError, match="gpu-architecture"):
            nvrtc.compile(SUM, "sum.cu", (), "sm_999")

    def test_threads_compile_side_by_side(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda size: nvrtc.compile(SUM, "sum.cu", [f"-DX={size}"]), range(8)))
        assert all(cubin.startswith(b"\x7fELF") and len(nvrtc.resource_usage(log)) == 1 for cubin, log in results)

    @pytest.mark.parametrize(("capability", "expected"), [((8, 0), "sm_80"), ((9, 0), "sm_90"), ((12, 0), "sm_120")])
    def test_architecture_of_a_gpu(self, capability: tuple[int, int], expected: str) -> None:
        assert nvrtc.architecture(capability) == expected

    def test_a_newer_gpu_of_a_known_family_runs_the_newest_known_code(self) -> None:
        assert nvrtc.architecture((9, 9)) == "sm_90"

    def test_a_gpu_of_an_unknown_family_needs_a_newer_nvrtc(self) -> None:
        with pytest.raises(DeviceUnavailableError, match=r"too old for compute capability 99\.0: pip install"):
            nvrtc.architecture((99, 0))


def test_a_gpu_that_is_too_old_is_refused() -> None:
    with pytest.raises(DeviceUnavailableError, match=r"7\.5; the kernels need 8\.0 or newer"):
        nvrtc.architecture((7, 5))


@pytest.mark.usefixtures("_not_installed")
def test_without_nvrtc_one_sentence_says_what_to_install() -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        nvrtc.compile(SUM, "sum.cu")
    assert "pip install 'cupy_turbo[cuda12]'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_log_in_another_form_is_an_error_not_a_zero() -> None:
    with pytest.raises(CompileError, match="not in the form"):
        nvrtc.resource_usage("ptxas info    : Compiling entry function 'sum' for 'sm_90'\nUsed many registers")
