"""This machine and one watched process, from /proc and /sys/fs/cgroup.

Everything is read at the start and at the end of the window. Between them, about twice a second, only the states of
the watched process's threads are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latdoctor.collect.host import limits as host_limits
from latdoctor.collect.host import parse as host_parse
from latdoctor.collect.host.cgroup import folders_of
from latdoctor.collect.host.samples import take
from latdoctor.collect.host.span import Span
from latdoctor.collect.sampling import moments
from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import to_json

NAME = "host"
TITLE = "host (/proc and cgroups)"
INTERVAL = 0.5  # seconds between two looks at the threads' states
MAX_SAMPLES = 41

_ROOT = Path("/")


def collect(request: Request, clock: Clock, root: Path = _ROOT) -> Collected:
    """Samples the machine over `request.window`. A file that cannot be read is kept as the reason why."""
    most = 2 if request.pid is None else MAX_SAMPLES
    artifacts: list[Artifact] = []
    for moment in moments(clock, request.window, INTERVAL, most):
        sample = take(root, request.pid, moment.time, whole=moment.at_end)
        name = f"{NAME}/{len(artifacts):03d}.json"
        artifacts.append(Artifact(name, NAME, NAME, "/proc of this machine", moment.time, to_json(sample)))
    return Collected(tuple(artifacts))


def preflight(root: Path = _ROOT) -> Sequence[Sight]:
    """What of the machine can be seen here: /proc, pressure, cgroup and quota; a process is seen once it is named."""
    span = Span((take(root, None, 0.0, whole=True),))
    missing = [
        reason for path, reason in span.last.unread.items() if path.startswith(("/proc/s", "/proc/v", "/proc/m"))
    ]
    return (
        Sight("/proc", "no" if missing else "yes", missing[0] if missing else "processors, memory, load"),
        _pressure(span),
        _cgroup(span),
        Sight("a process", "if given", "threads, switches, faults, CPU quota of its cgroup", "name it with --pid N"),
    )


def _pressure(span: Span) -> Sight:
    what = "pressure (PSI)"
    unread = {path: why for path, why in span.last.unread.items() if path.startswith("/proc/pressure/")}
    if not unread:
        return Sight(what, "yes", "processor, memory and disk")
    status = "partly" if any(path.startswith("/proc/pressure/") for path in span.last.files) else "no"
    detail = "; ".join(f"{path}: {why}" for path, why in unread.items())
    return Sight(what, status, detail, "boot with psi=1 on a kernel that has it (4.20 and newer)")


def _cgroup(span: Span) -> Sight:
    try:
        cpu, memory = folders_of(span.last.files, "self")
        quota = host_limits.quota_of(span)
    except SourceError as error:
        return Sight("cgroup", "partly", error.what, error.next_step)
    versions = f"CPU by version {cpu.version}, memory by version {memory.version}"
    if quota is None:
        return Sight("cgroup", "partly", f"{versions}; no CPU quota here", "name the server's process with --pid N")
    return Sight("cgroup", "yes", f"{versions}; CPU quota of {quota:g} processors")


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    provides=frozenset(host_parse.SIGNALS),
    asked=lambda request: request.host or request.pid is not None,
    collect=collect,
    parse=host_parse.parse,
    preflight=preflight,
    ask="--pid N",
    cost="watches the machine for the window",
)
