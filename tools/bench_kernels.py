"""Time the matrix products and attention of one GPU beside their floors and beside cuBLAS.

    python tools/bench_kernels.py                    # Llama-3.1-8B in bfloat16
    python tools/bench_kernels.py --sweep --rows 64  # every tile of gemm_large, to check choose_tile
    python tools/bench_kernels.py --device host --tiny --rows 1 64   # only to see that the tool runs

Each figure is the median of replays of a CUDA graph of several launches, which go round weights that together exceed
the L2 cache several times; all operands are random. The floor of a product is the larger of its bytes at the rate at
which this GPU just read memory and its operations at `--peak`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from cupy_turbo.core.dtypes import DType, float32, parse_dtype
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device import open_device
from cupy_turbo.ops.attention_decode import attention_decode, attention_decode_scratch
from cupy_turbo.ops.attention_prefill import attention_prefill
from cupy_turbo.ops.gemm import gemm
from cupy_turbo.ops.gemm_large import TILES, gemm_large, shared_limit
from cupy_turbo.ops.gemm_small import gemm_small
from cupy_turbo.ops.random_normal import random_normal

SHAPES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (128256, 4096),
}
TINY_SHAPES = {"qkv": (96, 64), "head": (200, 64)}
HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 128, 64
ROTATE_BYTES = 250_000_000  # four times the L2 cache of an H200
REPLAYS = 20

READ = r"""
extern "C" __global__ void __launch_bounds__(512) read(const uint4* __restrict__ x, float* out, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    unsigned sum = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i + 7 * stride < n; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k)
            asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                         : "l"(x + i + k * stride));
#pragma unroll
        for (int k = 0; k < 8; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (sum == 12345) out[0] = 1;
}
"""


@dataclass
class Bench:
    """What every measurement needs: where, what, and the two rates that make a floor."""

    device: Device
    stream: Stream
    dtype: DType
    bandwidth: float  # bytes per second
    peak: float  # operations per second

    def random(self, *shape: int, dtype: DType | None = None) -> Array:
        array = self.device.empty(shape, dtype or self.dtype)
        random_normal(array, std=0.05, seed=array.size, stream=self.stream)
        return array

    def milliseconds(self, launches: list[Callable[[], object]]) -> float:
        """Median time of one launch; they run one after the other in a graph."""
        for launch in launches:
            launch()  # compiles
        self.stream.sync()
        with self.device.capture(self.stream) as captured:
            for launch in launches:
                launch()
        graph = captured.graph
        start, stop = Event.create(timing=True, device=self.device), Event.create(timing=True, device=self.device)
        times = []
        for replay in range(REPLAYS + 3):
            start.record(self.stream)
            graph.launch(self.stream)
            stop.record(self.stream)
            stop.sync()
            if replay >= 3:
                times.append(stop.elapsed_since(start))
        return statistics.median(times) / len(launches)

    def line(self, name: str, milliseconds: float, num_bytes: float, operations: float, rest: str = "") -> None:
        floor = 1e3 * max(num_bytes / self.bandwidth, operations / self.peak)
        seconds = milliseconds / 1e3
        rates = f"{num_bytes / seconds / 1e12:6.2f} TB/s {operations / seconds / 1e12:6.0f} TFLOP/s"
        print(
            f"{name:28}{milliseconds:9.4f} ms {rates} {100 * floor / milliseconds:5.0f} % of floor  {rest}", flush=True
        )


def read_bandwidth(device: Device) -> float:
    """Bytes per second of reading device memory, the rate of the best of three launches."""
    cupy = importlib.import_module("cupy")
    count = 1 << 28  # of 16 bytes
    source, out = cupy.full(count * 4, 3, cupy.uint32), cupy.zeros(1, cupy.float32)
    kernel = cupy.RawKernel(READ, "read")
    best = 0.0
    for blocks in (2, 4, 8):
        for _ in range(5):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            kernel((blocks * device.num_processors,), (512,), (source, out, np.int64(count)))
            stop.record()
            stop.synchronize()
            best = max(best, 16e3 * count / cupy.cuda.get_elapsed_time(start, stop))
    return best


def peer(bench: Bench, m: int, n: int, k: int, copies: int) -> str:
    """Time cuBLAS through torch, or else through CuPy, in the same way."""
    try:
        torch = importlib.import_module("torch")
        kind = getattr(torch, str(bench.dtype))
        x = torch.randn(m, k, dtype=kind, device="cuda")
        weights = [torch.randn(n, k, dtype=kind, device="cuda") for _ in range(copies)]
        out = torch.empty(m, n, dtype=kind, device="cuda")
        for weight in weights:
            torch.mm(x, weight.T, out=out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for weight in weights:
                torch.mm(x, weight.T, out=out)
        times = []
        for replay in range(REPLAYS + 3):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            if replay >= 3:
                times.append(start.elapsed_time(stop))
        return f"torch {statistics.median(times) / copies:.4f} ms"
    except ImportError:
        return peer_cupy(bench, m, n, k, copies)


def peer_cupy(bench: Bench, m: int, n: int, k: int, copies: int) -> str:
    try:
        cupy = importlib.import_module("cupy")
        x, out = bench.random(m, k), bench.device.empty((m, n), bench.dtype)
        weights = [bench.random(n, k) for _ in range(copies)]
        bench.stream.sync()
        with cupy.cuda.ExternalStream(bench.stream.handle):
            time = bench.milliseconds([partial(cupy.matmul, x, weight.T, out=out) for weight in weights])
        return f"cupy {time:.4f} ms"
    except Exception as error:  # a peer that cannot do this shape or type is no reason to stop
        return f"no peer ({type(error).__name__})"


def bench_gemm(bench: Bench, name: str, m: int, n: int, k: int, *, sweep: bool) -> None:
    out_dtype = float32 if name == "head" else bench.dtype
    weight_bytes = n * k * bench.dtype.itemsize
    copies = max(1, -(-ROTATE_BYTES // weight_bytes)) if bench.device.kind == "cuda" else 1
    x, out = bench.random(m, k), bench.device.empty((m, n), out_dtype)
    weights = [bench.random(n, k) for _ in range(copies)]
    num_bytes = weight_bytes + m * k * bench.dtype.itemsize + m * n * out_dtype.itemsize
    candidates: dict[str, Callable[..., None]] = {"": gemm}
    if sweep and m <= 16:
        candidates |= {f"small rows={rows}": partial(gemm_small, rows=rows) for rows in (1, 2, 4)}
    if sweep and bench.dtype != float32:
        fitting = [tile for tile in TILES if tile.shared_bytes <= shared_limit(bench.device) and m > tile.rows // 4]
        candidates |= {tile.define: partial(gemm_large, tile=tile) for tile in fitting}
    for variant, product in candidates.items():
        time = bench.milliseconds([partial(product, out, x, weight, stream=bench.stream) for weight in weights])
        other = peer(bench, m, n, k, copies) if product is gemm and bench.device.kind == "cuda" else ""
        bench.line(f"{name} M={m} {variant}", time, num_bytes, 2 * m * n * k, other)


def paged(bench: Bench, rows: int, context: int) -> list[Array]:
    """Return caches of random values and the table, slots and lengths of so many sequences."""
    per_row = -(-context // BLOCK_SIZE)
    caches = [bench.random(rows * per_row, KV_HEADS, BLOCK_SIZE, HEAD_DIM) for _ in range(2)]
    table = np.random.default_rng(0).permutation(rows * per_row).astype(np.int32).reshape(rows, per_row)
    slots, lengths = np.arange(rows, dtype=np.int32), np.full(rows, context, np.int32)
    return [*caches, *map(bench.device.upload, (table, slots, lengths))]


def bench_decode(bench: Bench, rows: int, context: int) -> None:
    k_cache, v_cache, table, perm, lengths = paged(bench, rows, context)
    num_splits = 32 if rows <= 16 else 16 if rows <= 64 else 8
    count = attention_decode_scratch(rows, HEADS, HEAD_DIM, num_splits)
    qkv = bench.random(rows, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    out, scratch = bench.random(rows, HEADS * HEAD_DIM), bench.device.empty((count,), float32)
    finished = bench.device.upload(np.zeros(rows, np.int32))

    def launch() -> None:
        arrays = (out, qkv, k_cache, v_cache, table, perm, finished, lengths, scratch)
        sizes = {"num_heads": HEADS, "num_rows": rows, "num_splits": num_splits}
        attention_decode(*arrays, **sizes, scale=HEAD_DIM**-0.5, stream=bench.stream)

    cache_bytes = 2 * rows * context * KV_HEADS * HEAD_DIM * bench.dtype.itemsize
    time = bench.milliseconds([launch] * 4)
    warm = "" if cache_bytes > ROTATE_BYTES else "(partly from L2)"
    bench.line(f"decode {rows} x {context}", time, cache_bytes, 4 * rows * context * HEADS * HEAD_DIM, warm)


def bench_prefill(bench: Bench, tokens: int) -> None:
    k_cache, v_cache, table, perm, lengths = paged(bench, 1, tokens)
    qkv = bench.random(tokens, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    out, starts = bench.random(tokens, HEADS * HEAD_DIM), bench.device.upload(np.array([0, tokens], np.int32))

    def launch() -> None:
        arrays = (out, qkv, k_cache, v_cache, table, perm, starts, lengths)
        sizes = {"num_heads": HEADS, "first_row": 0, "num_rows": 1, "max_query_len": tokens}
        attention_prefill(*arrays, **sizes, scale=HEAD_DIM**-0.5, stream=bench.stream)

    num_bytes = (2 * HEADS + 2 * KV_HEADS) * tokens * HEAD_DIM * bench.dtype.itemsize
    bench.line(f"prefill {tokens}", bench.milliseconds([launch] * 2), num_bytes, 2 * tokens**2 * HEADS * HEAD_DIM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64, 512, 2048], help="M of the products")
    parser.add_argument("--peak", type=float, default=790.0, help="TFLOP/s of the floor, default cuBLAS on an H200")
    parser.add_argument("--sweep", action="store_true", help="time every tile beside the chosen one")
    parser.add_argument("--only", choices=("gemm", "decode", "prefill"), help="one group instead of all")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, to try the tool itself")
    options = parser.parse_args()
    with open_device(options.device) as device:
        bandwidth = read_bandwidth(device) if device.kind == "cuda" else 10e9
        print(f"{device.name}: reads {bandwidth / 1e12:.2f} TB/s, floor of products {options.peak} TFLOP/s")
        stream = Stream.create(device=device)
        bench = Bench(device, stream, parse_dtype(options.dtype), bandwidth, options.peak * 1e12)
        if options.only in (None, "gemm"):
            shapes = TINY_SHAPES if options.tiny else SHAPES
            for (name, (n, k)), m in itertools.product(shapes.items(), options.rows):
                bench_gemm(bench, name, m, n, k, sweep=options.sweep)
        if options.only in (None, "decode"):
            for rows, context in ((2, 70),) if options.tiny else ((1, 1024), (8, 1024), (64, 1024), (256, 1024)):
                bench_decode(bench, rows, context)
        if options.only in (None, "prefill"):
            for tokens in (70,) if options.tiny else (512, 2048, 8192):
                bench_prefill(bench, tokens)


if __name__ == "__main__":
    main()
