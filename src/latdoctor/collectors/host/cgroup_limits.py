"""Limits of a process's control groups and their effects: quota, throttling, memory limit, OOM kills. Pure.

If no limit is set at any level above the watched process, that is a result: the quota is all processors, and nothing
was throttled. Without a watched process, the cgroup is that of latdoctor itself: with a limit it is the container
shared with the server; without one it says nothing about the server.
"""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.collectors.host.cgroup_paths import CgroupFolders, cgroup_folders
from latdoctor.collectors.host.machine import STAT, VMSTAT, processors
from latdoctor.collectors.host.sample_window import HostValue, SampleWindow, SignalGroup, number, numbers, single
from latdoctor.errors import SourceError

_UNLIMITED = 1 << 62  # version 1 writes "no limit" as the largest multiple of the page size in 63 bits


_NAMED = "name the server's process (--pid N)"


_NOT_THE_SERVERS = "the cgroup that latdoctor runs in need not be the server's"


def _folders(span: SampleWindow, controller: str) -> CgroupFolders:
    """Raises SourceError if they are unknown, or those of the login session of latdoctor."""
    process = "self" if span.last.pid is None else str(span.last.pid)
    found = next(folders for folders in cgroup_folders(span.last.files, process) if folders.controller == controller)
    if process == "self" and len(found.levels) > 1:
        raise SourceError(_NOT_THE_SERVERS, next_step=_NAMED)
    if not any(f"{level}/{name}" in span.last.files for level in found.levels for name in found.names):
        reason = span.last.unread.get(f"{found.levels[0]}/{found.names[0]}", "was not read")
        raise SourceError(f"{found.levels[0]}/{found.names[0]}: {reason}")
    return found


def _limit(span: SampleWindow, path: str) -> int | None:
    """The number in a file that the root level lacks; None for no limit. Raises SourceError."""
    if span.last.unread.get(path) == "no such file":
        return None
    value = single(span.text(path), path)
    return None if value is None or value >= _UNLIMITED else value


def quota_of(span: SampleWindow) -> float | None:
    """The lowest CPU quota of any level in processors; None if there is none. Raises SourceError."""
    folders = _folders(span, "cpu")
    quotas = [quota for level in folders.levels if (quota := _quota(span, folders.version, level)) is not None]
    return min(quotas, default=None)


def _quota(span: SampleWindow, version: int, level: str) -> float | None:
    if version == 1:
        quota, period = (_limit(span, f"{level}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    else:
        path = f"{level}/cpu.max"  # "max 100000" or "50000 100000"
        if span.last.unread.get(path) == "no such file":
            return None
        words = span.text(path).split()
        if len(words) != 2:
            raise SourceError(f"{path}: not a quota and a period")
        quota, period = (single(word, path) for word in words)
    if quota is None:
        return None
    if not quota or not period:
        raise SourceError(f"{level}: a quota or a period of 0")
    return quota / period


def _watched_quota(span: SampleWindow) -> float | None:
    quota = quota_of(span)
    if quota is None and span.last.pid is None:
        raise SourceError(_NOT_THE_SERVERS, next_step=_NAMED)
    return quota


def _cpu_quota(span: SampleWindow) -> Sequence[HostValue]:
    quota = _watched_quota(span)
    place = _folders(span, "cpu").levels[0]
    if quota is None:
        count = len(processors(span.text(STAT)))
        return [HostValue("cgroup.cpu.quota", float(count), place, "no quota is set: every processor may be used")]
    return [HostValue("cgroup.cpu.quota", quota, place)]


def _throttled(span: SampleWindow) -> Sequence[HostValue]:
    """The figures of the level that was throttled most."""
    seconds, folders = span.seconds, _folders(span, "cpu")
    _watched_quota(span)
    key, factor = ("throttled_usec", 1e-6) if folders.version == 2 else ("throttled_time", 1e-9)
    ratio, time, place, periods = 0.0, 0.0, f"{folders.levels[0]}/cpu.stat", 0
    for level in folders.levels:
        path = f"{level}/cpu.stat"
        if span.last.unread.get(path) == "no such file":
            continue
        # The root level of version 2 has no periods, because it is unlimited.
        passed, hit, spent = (span.growth(path, name, absent=0) for name in ("nr_periods", "nr_throttled", key))
        periods += passed
        if passed and hit / passed > ratio:
            ratio, time, place = hit / passed, spent * factor / seconds, path
    note = "" if periods else "no scheduling period passed under a quota"
    return [
        HostValue("cgroup.cpu.throttled_ratio", ratio, place, note),
        HostValue("cgroup.cpu.throttled_time", time, place, note),
    ]


def _memory_limits(span: SampleWindow, folders: CgroupFolders) -> dict[str, int]:
    """The memory limits in bytes by level."""
    name = "memory.max" if folders.version == 2 else "memory.limit_in_bytes"
    limits = {level: limit for level in folders.levels if (limit := _limit(span, f"{level}/{name}")) is not None}
    if not limits and span.last.pid is None:
        raise SourceError(_NOT_THE_SERVERS, next_step=_NAMED)
    if not all(limits.values()):
        raise SourceError(f"{folders.levels[0]}/{name}: a limit of 0")
    return limits


def _memory(span: SampleWindow) -> Sequence[HostValue]:
    """The fullest level with a limit."""
    folders = _folders(span, "memory")
    usage, cache = (
        ("memory.current", "inactive_file")
        if folders.version == 2
        else ("memory.usage_in_bytes", "total_inactive_file")
    )
    facts = []
    for level, limit in _memory_limits(span, folders).items():
        used, path = single(span.text(f"{level}/{usage}"), f"{level}/{usage}") or 0, f"{level}/memory.stat"
        unused = number(numbers(span.text(path), path), cache, path, 0)
        facts.append(HostValue("cgroup.memory.used_ratio", max(0, used - unused) / limit, f"{level}/{usage}"))
    unlimited = HostValue("cgroup.memory.used_ratio", 0.0, folders.levels[0], "no memory limit is set")
    return [max(facts, key=lambda fact: fact.value, default=unlimited)]


def _kills(span: SampleWindow) -> Sequence[HostValue]:
    """OOM kills of the innermost level. The root level has no counter; there it is the machine's."""
    folders = _folders(span, "memory")
    _memory_limits(span, folders)
    path = f"{folders.levels[0]}/{'memory.events' if folders.version == 2 else 'memory.oom_control'}"
    if len(folders.levels) == 1 and span.last.unread.get(path) == "no such file":
        path = VMSTAT
    return [HostValue("cgroup.memory.oom_kills", float(span.growth(path, "oom_kill")), path)]


SECTIONS: tuple[SignalGroup, ...] = (
    SignalGroup(("cgroup.cpu.quota",), _cpu_quota),
    SignalGroup(("cgroup.cpu.throttled_ratio", "cgroup.cpu.throttled_time"), _throttled),
    SignalGroup(("cgroup.memory.used_ratio",), _memory),
    SignalGroup(("cgroup.memory.oom_kills",), _kills),
)
