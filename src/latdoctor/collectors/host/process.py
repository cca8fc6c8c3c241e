"""Parser of /proc/PID: the watched process and its threads. Pure.

The context switches in /proc/PID/status are those of the first thread only, so they are summed over the threads. A
thread that started within the window counts fully; one that ended in it is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.collectors.host.cgroup_limits import quota_of
from latdoctor.collectors.host.machine import STAT, processors, worked
from latdoctor.collectors.host.proc_snapshot import HostSample
from latdoctor.collectors.host.sample_window import (
    HostValue,
    SampleWindow,
    SignalGroup,
    counter_growth,
    number,
    numbers,
    text_of,
    unread_error,
)
from latdoctor.collectors.proc_pid_stat import ProcessStat, parse_stat
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode

_KINDS = {
    "process.voluntary_switch_rate": "voluntary_ctxt_switches",
    "process.involuntary_switch_rate": "nonvoluntary_ctxt_switches",
}


def _stat(sample: HostSample, path: str) -> ProcessStat:
    try:
        return parse_stat(text_of(sample, path))
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from None


def _ends(span: SampleWindow) -> tuple[ProcessStat, ProcessStat, str]:
    """The first and the last state of the process. Raises SourceError if the PID was reused."""
    path = f"/proc/{span.last.pid}/stat"
    first, last = _stat(span.first, path), _stat(span.last, path)
    if first.start_ticks != last.start_ticks:
        raise SourceError(
            f"process {span.last.pid} ended within the window and its PID was reused", code=GapCode.STOPPED
        )
    return first, last, path


def _used(span: SampleWindow) -> tuple[int, str]:
    """CPU ticks of the process over the window, and the file they are from. Raises SourceError."""
    first, last, path = _ends(span)
    was, now = first.user_ticks + first.system_ticks, last.user_ticks + last.system_ticks
    return counter_growth(was, now, f"{path}: processor time"), path


def _time(span: SampleWindow) -> Sequence[HostValue]:
    seconds = span.seconds
    used, path = _used(span)
    return [HostValue("process.cpu_ratio", used / span.last.ticks_per_second / seconds, path)]


def _system(span: SampleWindow) -> Sequence[HostValue]:
    first, last, path = _ends(span)
    user = counter_growth(first.user_ticks, last.user_ticks, f"{path}: user time")
    system = counter_growth(first.system_ticks, last.system_ticks, f"{path}: system time")
    if not user + system:
        raise SourceError(f"process {span.last.pid} used no processor time in the window", code=GapCode.NOTHING_COUNTED)
    return [HostValue("process.system_ratio", system / (user + system), path)]


def _faults(span: SampleWindow) -> Sequence[HostValue]:
    seconds = span.seconds
    first, last, path = _ends(span)
    minor = counter_growth(first.minor_faults, last.minor_faults, f"{path}: minor faults")
    major = counter_growth(first.major_faults, last.major_faults, f"{path}: major faults")
    return [
        HostValue("process.minor_fault_rate", minor / seconds, path),
        HostValue("process.major_fault_rate", major / seconds, path),
    ]


def _size(span: SampleWindow) -> Sequence[HostValue]:
    _, last, path = _ends(span)
    return [
        HostValue("process.rss", float(max(0, last.rss) * span.last.page_size), path),
        HostValue("process.threads", float(last.threads), path),
    ]


def _uptime(span: SampleWindow) -> Sequence[HostValue]:
    _, last, path = _ends(span)
    try:
        since_boot = float(span.text("/proc/uptime").split()[0])
    except (IndexError, ValueError):
        raise SourceError("/proc/uptime: contains no time") from None
    age = since_boot - last.start_ticks / span.last.ticks_per_second
    if not 0 <= age < 1e10:
        raise SourceError("/proc/uptime is relative to the container, but the process start is relative to the machine")
    return [HostValue("process.uptime", age, path)]


def _runnable(span: SampleWindow) -> Sequence[HostValue]:
    """The mean over the samples, and per processor that the process may use."""
    path = f"/proc/{span.last.pid}/task"
    if span.last.tasks_left_out:
        raise SourceError(
            f"{path}: more threads than can be sampled ({span.last.tasks_left_out} too many)", code=GapCode.TOO_LARGE
        )
    counts = [count for sample in span.samples if (count := _running(sample, path)) is not None]
    if not counts or not span.last.tasks:
        raise unread_error(span.last, path)
    mean = sum(counts) / len(counts)
    note = f"mean of {len(counts)} samples"
    facts = [HostValue("process.runnable_threads", mean, path, note)]
    usable = _usable(span)
    facts.append(
        HostValue("process.threads_per_cpu", mean / usable, path, f"{note}; {usable:g} processors may be used")
    )
    return facts


def _running(sample: HostSample, path: str) -> int | None:
    """Number of threads in state R; None if no thread could be read. Threads that ended are skipped."""
    states = []
    for task in sample.tasks:
        text = sample.files.get(f"{path}/{task}/stat")
        if text is not None:
            states.append(_stat(sample, f"{path}/{task}/stat").state)
    return states.count("R") if states else None


def _usable(span: SampleWindow) -> float:
    """Processors that the process may use: its affinity mask, limited by its quota. Raises SourceError."""
    allowed = min(sum(max(0, high - low + 1) for low, high in _mask(span)), 1 << 20) or len(processors(span.text(STAT)))
    try:
        quota = quota_of(span)
    except SourceError:
        quota = None  # the quota has a gap of its own
    return float(allowed) if quota is None else min(float(allowed), quota)


def _mask(span: SampleWindow) -> tuple[tuple[int, int], ...]:
    """The processor ranges of `Cpus_allowed_list: 0-3,8`; empty if unknown."""
    text = span.last.files.get(f"/proc/{span.last.pid}/status", "")
    line = next((line for line in text.splitlines() if line.startswith("Cpus_allowed_list:")), ":")
    found = []
    for part in line.split(":", 1)[1].split(","):
        low, _, high = part.strip().partition("-")
        high = high or low
        if not (low.isascii() and low.isdecimal() and high.isascii() and high.isdecimal()):
            return ()
        found.append((int(low), int(high)))
    return tuple(found)


def _others(span: SampleWindow) -> Sequence[HostValue]:
    """CPU used by others on the processors that the process may use: total work less its own and its descendants'."""
    own, _ = _used(span)
    started = _used_by_descendants(span)
    there, mask = processors(span.text(STAT)), _mask(span)
    allowed = [cpu for cpu in there if any(low <= cpu <= high for low, high in mask)] or there
    each = [worked(span, cpu) for cpu in allowed]
    passed = sum(ticks for _, ticks in each)
    if not passed:
        raise SourceError(f"{STAT}: no time passed on the processors that process {span.last.pid} may use")
    ratio = max(0.0, (sum(work for work, _ in each) - own - started) / passed)
    note = f"on the {len(allowed)} processors that it may use"
    if span.last.descendants:
        note += f"; its {len(span.last.descendants)} subprocesses are not others"
    return [HostValue("process.others_cpu_ratio", ratio, STAT, note)]


def _used_by_descendants(span: SampleWindow) -> int:
    """CPU ticks over the window of the processes that it started; of those that ended within it nothing is known."""
    total = 0
    for child in span.last.descendants:
        path = f"/proc/{child}/stat"
        if path not in span.last.files:
            continue
        last = _stat(span.last, path)
        now, before = last.user_ticks + last.system_ticks, 0
        if path in span.first.files and (first := _stat(span.first, path)).start_ticks == last.start_ticks:
            before = first.user_ticks + first.system_ticks
        total += max(0, now - before)
    return total


def _switches(span: SampleWindow) -> Sequence[HostValue]:
    seconds = span.seconds
    _ends(span)
    folder = f"/proc/{span.last.pid}/task"
    if span.last.tasks_left_out:
        raise SourceError(
            f"{folder}: more threads than can be sampled ({span.last.tasks_left_out} too many)", code=GapCode.TOO_LARGE
        )
    ended = len(set(span.first.tasks) - set(span.last.tasks))
    note = f"{ended} threads ended in the window and are not counted" if ended else ""
    return [
        HostValue(
            signal, sum(_switched(span, f"{folder}/{task}", key) for task in span.last.tasks) / seconds, folder, note
        )
        for signal, key in _KINDS.items()
    ]


def _switched(span: SampleWindow, folder: str, key: str) -> int:
    status, stat = f"{folder}/status", f"{folder}/stat"
    if status not in span.last.files or stat not in span.last.files:
        return 0  # the thread ended while it was read
    last = number(numbers(text_of(span.last, status), status), key, status)
    same = (
        status in span.first.files
        and stat in span.first.files
        and _stat(span.first, stat).start_ticks == _stat(span.last, stat).start_ticks
    )
    first = number(numbers(text_of(span.first, status), status), key, status) if same else 0
    return counter_growth(first, last, f"{status}: {key}")


SECTIONS: tuple[SignalGroup, ...] = (
    SignalGroup(("process.cpu_ratio",), _time),
    SignalGroup(("process.system_ratio",), _system),
    SignalGroup(("process.minor_fault_rate", "process.major_fault_rate"), _faults),
    SignalGroup(("process.rss", "process.threads"), _size),
    SignalGroup(("process.uptime",), _uptime),
    SignalGroup(("process.runnable_threads", "process.threads_per_cpu"), _runnable),
    SignalGroup(("process.others_cpu_ratio",), _others),
    SignalGroup(tuple(_KINDS), _switches),
)
