"""What this process may take of the machine: cores and memory, without psutil; and whether CUDA should show a GPU."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_DEVICES = Path("/dev")
_WSL_DRIVER = Path("/usr/lib/wsl/lib/libcuda.so.1")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_nvidia_gpu() -> bool:
    """Tell whether the system has an NVIDIA GPU that `CUDA_VISIBLE_DEVICES` does not hide; asks no CUDA library."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1", "NoDevFiles"):
        return False
    return any(_DEVICES.glob("nvidia[0-9]*")) or _WSL_DRIVER.exists()


def free_and_total_memory() -> tuple[int, int]:
    """Return (free, total) bytes: of the machine, or of the control group's limit if that is smaller."""
    free, total = _machine()
    limit, used = _read_number(_CGROUP / "memory.max"), _read_number(_CGROUP / "memory.current")
    if limit is not None and limit < total:
        total = limit
        free = min(free, max(0, limit - (used or 0)))
    return free, total


def _machine() -> tuple[int, int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) << 10, int(fields["MemTotal"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        page = os.sysconf("SC_PAGE_SIZE")
        total = page * os.sysconf("SC_PHYS_PAGES")
        return page * os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else total // 2, total


def _read_number(path: Path) -> int | None:
    """Content of a control file, None where it is absent or says "max"."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
