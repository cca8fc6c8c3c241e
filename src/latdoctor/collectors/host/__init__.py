"""This machine and one process, from /proc and control groups."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "host"
TITLE = "host (/proc and cgroups)"
SIGNALS = (
    "host.accelerators", "host.cpus", "host.load_per_cpu", "host.cpu.busy_ratio", "host.cpu.steal_ratio",
    "host.cpu.system_ratio", "host.cpu.iowait_ratio", "host.context_switch_rate", "host.psi.cpu_some",
    "host.psi.memory_some",
    "host.psi.memory_full", "host.psi.io_some", "host.psi.io_full", "host.memory.available_ratio",
    "host.swap.in_rate", "host.major_fault_rate", "cgroup.cpu.quota", "cgroup.cpu.throttled_ratio",
    "cgroup.cpu.throttled_time", "cgroup.memory.used_ratio", "cgroup.memory.oom_kills", "process.cpu_ratio",
    "process.system_ratio", "process.minor_fault_rate", "process.major_fault_rate", "process.rss",
    "process.threads", "process.uptime", "process.runnable_threads", "process.threads_per_cpu",
    "process.others_cpu_ratio", "process.voluntary_switch_rate", "process.involuntary_switch_rate",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.host.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset(SIGNALS),
    is_requested=lambda request: request.host or request.pid is not None,
    reader=_reader,
    option="--pid N",
    cost="takes the window",
)
