"""Print the extra of setup.cfg that fits this machine's GPU: ``cuda12``, ``cuda13``, or nothing without a usable GPU.

Run before anything is installed, so it uses the standard library and the driver's own library alone. A GPU or a driver
that is there but too old is named on standard error, in one sentence with the remedy; the host device still works then.
``--require`` makes a missing GPU an error (exit status 1).
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from dataclasses import dataclass

OLDEST_CUDA = 12
OLDEST_CAPABILITY = (8, 0)  # the kernels' cp.async and bfloat16 mma
CUDA_ERROR_NO_DEVICE = 100
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the NVIDIA driver says of itself and of its first GPU."""

    cuda_version: tuple[int, int]  # newest CUDA that it can run
    num_gpus: int
    capability: tuple[int, int] = (0, 0)  # of GPU 0
    init_error: int = 0  # CUresult of cuInit


def read_driver() -> Driver | None:
    """Ask libcuda; None where there is no such library."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    version = (number.value // 1000, number.value % 1000 // 10)
    init_error = int(cuda.cuInit(0))
    if init_error:
        return Driver(cuda_version=version, num_gpus=0, init_error=init_error)
    cuda.cuDeviceGetCount(ctypes.byref(number))
    num_gpus, gpu = number.value, ctypes.c_int()
    if num_gpus == 0:
        return Driver(cuda_version=version, num_gpus=0)
    cuda.cuDeviceGet(ctypes.byref(gpu), 0)
    cuda.cuDeviceGetAttribute(ctypes.byref(number), CAPABILITY_MAJOR, gpu)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), CAPABILITY_MINOR, gpu)
    return Driver(cuda_version=version, num_gpus=num_gpus, capability=(number.value, minor.value))


def choose_extra(driver: Driver | None) -> tuple[str, str]:
    """Return the extra (empty: none) and a sentence on why there is none (empty: nothing to tell)."""
    if driver is None or driver.init_error == CUDA_ERROR_NO_DEVICE:
        return "", "no NVIDIA GPU found"
    major, minor = driver.cuda_version
    if major < OLDEST_CUDA:
        return (
            "",
            f"the NVIDIA driver runs CUDA {major}.{minor} at most, too old: update it to one for CUDA 12 or newer",
        )
    if driver.init_error:
        return "", f"the NVIDIA driver does not start (CUDA error {driver.init_error}): see what `nvidia-smi` says"
    if driver.num_gpus == 0:
        return "", "no NVIDIA GPU found"
    if driver.capability < OLDEST_CAPABILITY:
        found, oldest = (".".join(map(str, pair)) for pair in (driver.capability, OLDEST_CAPABILITY))
        return "", f"GPU 0 has compute capability {found}, and the kernels need {oldest} (Ampere) or newer"
    # A CUDA 13 driver also runs CUDA 12, but a CUDA 12 driver does not run CUDA 13.
    return ("cuda12" if major == OLDEST_CUDA else "cuda13"), ""


def main() -> int:
    """Print the extra; with ``--require``, fail where there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--require", action="store_true", help="fail where there is no usable GPU")
    arguments = parser.parse_args()
    driver = read_driver()
    extra, reason = choose_extra(driver)
    if extra:
        print(extra)
    elif arguments.require:
        print(f"cupy_turbo: {reason}; this needs a GPU.", file=sys.stderr)
        return 1
    elif reason != "no NVIDIA GPU found":
        print(f"cupy_turbo: {reason}. Using the host device instead.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
