"""What this machine gives us: CPUs and memory, as the cgroup and the affinity mask allow.

Reads files, changes nothing. Every function takes the root of the file system, so that tests can
show it another machine.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def cpu_count(root: Path = ROOT) -> int:
    """CPUs this process may use: the affinity mask, cut down by the cgroup's quota; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = cpu_quota(root)
    # A quota of 1.5 CPUs keeps two workers busy for most of the time: round up, as Docker users mean it.
    return allowed if quota is None else max(1, min(allowed, int(quota + 0.999)))


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs that the cgroup grants per period, or None when it sets no limit."""
    quotas = []
    for group in _groups(root, "cpu"):
        words = _read(group / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":  # noqa: PLR2004 - "quota period"
            quotas.append(int(words[0]) / int(words[1]))
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if quota and period and int(quota) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def cpu_seconds(root: Path = ROOT) -> tuple[float, float]:
    """Seconds that all CPUs of the machine have worked, and been idle, since it was started; 0, 0 if unknown.

    Only the difference between two moments means something.
    """
    words = (_read(root / "proc/stat").split("\n", 1)[0]).split()
    if len(words) < 9 or words[0] != "cpu":  # noqa: PLR2004 - up to the time that other machines took
        return 0.0, 0.0
    user, nice, system, idle, waiting, *others = (int(word) / _TICKS for word in words[1:9])
    return user + nice + system + sum(others), idle + waiting


def memory_available(root: Path = ROOT) -> int:
    """Bytes that may still be used before the machine or the memory cgroup is full."""
    free = [_meminfo(root)]
    for group in _groups(root, "memory"):
        for limit_name, usage_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, usage = _read(group / limit_name), _read(group / usage_name)
            if limit.isdigit() and usage.isdigit():
                free.append(int(limit) - int(usage) + _reclaimable(group))
    return max(0, min(free))


def oom_kills(root: Path = ROOT) -> int:
    """How many processes the kernel has killed for want of memory, in our cgroups or else on the machine.

    Only the difference between two moments means something.
    """
    counts = [
        int(line.split()[1])
        for group in _groups(root, "memory")
        for name in ("memory.events", "memory.oom_control")  # v2, v1
        for line in _read(group / name).splitlines()
        if line.startswith("oom_kill ")
    ]
    if not counts:
        counts = [
            int(line.split()[1])
            for line in _read(root / "proc/vmstat").splitlines()
            if line.startswith("oom_kill ")
        ]
    return max(counts, default=0)


def memory_total(root: Path = ROOT) -> int:
    """Bytes that the machine or the memory cgroup has in all."""
    total = [int(words[1]) * 1024 for words in _lines(root / "proc/meminfo") if words[0] == "MemTotal:"]
    for group in _groups(root, "memory"):
        limits = (_read(group / "memory.max"), _read(group / "memory.limit_in_bytes"))
        total += [int(limit) for limit in limits if limit.isdigit()]
    return min(total, default=1 << 30)


def anonymous_memory(root: Path = ROOT) -> int:
    """Bytes of this process that no file backs, those shared with its parent included. Quick."""
    words = _read(root / "proc/self/statm").split()
    return (int(words[1]) - int(words[2])) * _PAGE if words else 0


def own_memory(root: Path = ROOT) -> int:
    """Bytes of this process that no file backs; of what it shares, its part. Slow if it is large."""
    for words in _lines(root / "proc/self/smaps_rollup"):
        if words[0] == "Pss_Anon:":
            return int(words[1]) * 1024
    return anonymous_memory(root)  # Linux before 5.10


def _lines(path: Path) -> list[list[str]]:
    return [words for words in map(str.split, _read(path).splitlines()) if len(words) > 1]


def _meminfo(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 1 << 30  # no way to ask on this system: assume a modest machine


def _reclaimable(group: Path) -> int:
    # Clean page cache is charged to the cgroup but given up before anything is killed.
    for line in _read(group / "memory.stat").splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0


def _groups(root: Path, controller: str) -> list[Path]:
    """Directories of this process's cgroups and of all above them, v2 and v1: every limit counts."""
    base = root / "sys/fs/cgroup"
    found = [base, base / controller]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == "":
            tops = [base, base / "unified"]
        elif controller in names.split(","):
            tops = [base / names, base / controller]
        else:
            continue
        for top in tops:
            group = top / path.lstrip("/")
            while group != top:
                found.append(group)
                group = group.parent
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
