"""CPU seconds and peak memory of processes, from ``/proc``. Linux only, as the bench is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _CUTIME, _CSTIME = 11, 12, 13, 14
"""Fields of ``/proc/PID/stat`` after the name, which may contain any character."""
_IDLE, _IOWAIT = 3, 4


def tree(pid: int) -> list[int]:
    """Return the process and all its descendants; empty when it has ended."""
    found, rest = [], [pid]
    while rest:
        each = rest.pop()
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                rest += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        found.append(each)
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process with its descendants, including ended ones."""
    return sum(map(_own_cpu_s, tree(pid)))


def _own_cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[at]) for at in (_UTIME, _STIME, _CUTIME, _CSTIME)) / TICKS_PER_S


def peak_mb(pid: int) -> float:
    """Return the peak resident memory of a process tree in MB (10^6 bytes): the sum of each process's own peak."""
    return sum(each_peak_mb(pid))


def each_peak_mb(pid: int) -> list[float]:
    """Return the peak resident memory of each process of a tree in MB (10^6 bytes)."""
    return [own_peak_mb(each) for each in tree(pid)]


def own_peak_mb(pid: int) -> float:
    """Return the peak resident memory of one process in MB (10^6 bytes); 0 if it has ended."""
    return _status_kib(pid, "VmHWM") * 1_024 / 1e6


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process tree in MB (10^6 bytes)."""
    return sum(_status_kib(each, "VmRSS") for each in tree(pid)) * 1_024 / 1e6


def open_files(pid: int) -> int:
    """Return the number of open descriptors of a process, including sockets."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Return the number of threads of a process."""
    return _status_kib(pid, "Threads")


def _status_kib(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def machine_busy_s() -> float:
    """Return the CPU seconds for which the whole machine has been busy since it started, including stolen time."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[_IDLE] - fields[_IOWAIT]) / TICKS_PER_S
