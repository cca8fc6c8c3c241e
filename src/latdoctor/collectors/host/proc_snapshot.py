"""One moment of /proc and /sys/fs/cgroup: which files are read, how, and the format of the sample.

A sample is an artifact with the text of each file by its path, and the reason for each file that could not be read; the
parser uses nothing else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.collectors.host.accelerator_list import DEVICES, PCI, accelerator_lists
from latdoctor.collectors.host.cgroup_paths import cgroup_folders
from latdoctor.collectors.proc_pid_stat import parent_pid
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact

SCHEMA_VERSION = 1
MAX_TEXT = 1 << 20  # bytes read of one file; /proc/stat of a machine with 1 000 processors has about 100 KiB
MAX_SAMPLE = 64 << 20  # bytes of JSON
MAX_TASKS = 4096  # threads per sample
MAX_DESCENDANTS = 512  # processes that the watched one started, per sample

NODE_FILES = (
    "/proc/stat",
    "/proc/vmstat",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
)
# Only these lines are kept: the others are unused or private.
_SWITCHES = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


class HostSample(Struct, frozen=True):
    """One moment. `files` maps a path to its text, `unread` a path to the reason why it could not be read."""

    schema_version: int
    time: float  # unix seconds UTC
    pid: int | None
    ticks_per_second: int  # clock ticks, for the times in /proc/PID/stat
    page_size: int  # bytes
    tasks: tuple[int, ...]  # threads of `pid` in this sample
    tasks_left_out: int
    files: dict[str, str]
    unread: dict[str, str]
    descendants: tuple[int, ...] = ()  # processes that `pid` started, directly or not; of whole samples


@dataclass
class _TextReader:
    """Collects texts below `root`, which is / except in tests."""

    root: Path
    files: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str, keep: Sequence[str] = ()) -> None:
        """Keep the text of `path`, or only the lines that begin with one of `keep`."""
        try:
            with self.at(path).open("rb") as file:
                text = file.read(MAX_TEXT + 1).decode("utf-8", "replace")
        except OSError as error:
            self.unread[path] = why_unread(error)
            return
        if len(text) > MAX_TEXT:
            self.unread[path] = f"larger than {MAX_TEXT >> 20} MiB"
            return
        lines = (line for line in text.splitlines(keepends=True) if line.startswith(tuple(keep)))
        self.files[path] = "".join(lines) if keep else text


def why_unread(error: OSError) -> str:
    """The reason, independent of the locale."""
    known = {
        errno.ENOENT: "no such file",
        errno.ESRCH: "no such process",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EOPNOTSUPP: "operation not supported",
    }
    return known.get(error.errno or 0, f"error {error.errno}")


def take_sample(root: Path, pid: int | None, time: float, *, whole: bool) -> HostSample:
    """Read all files (`whole`), or only the states of the threads of `pid`. Never raises."""
    reader = _TextReader(root)
    tasks, left_out = _tasks(reader, pid) if pid is not None else ((), 0)
    descendants = _descendants(reader, pid) if whole and pid is not None else ()
    for child in descendants:
        reader.read(f"/proc/{child}/stat")
    for task in tasks:
        reader.read(f"/proc/{pid}/task/{task}/stat")
    if whole:
        for path in NODE_FILES:
            reader.read(path)
        for task in tasks:
            reader.read(f"/proc/{pid}/task/{task}/status", keep=_SWITCHES)
        _read_accelerators(reader)
        _read_process(reader, "self" if pid is None else str(pid))
    return HostSample(
        schema_version=SCHEMA_VERSION,
        time=time,
        pid=pid,
        ticks_per_second=os.sysconf("SC_CLK_TCK"),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        tasks=tasks,
        tasks_left_out=left_out,
        files=reader.files,
        unread=reader.unread,
        descendants=descendants,
    )


def _read_accelerators(reader: _TextReader) -> None:
    try:
        reader.files |= accelerator_lists(reader.root)
    except OSError as error:
        reader.unread |= dict.fromkeys((PCI, DEVICES), why_unread(error))


def _tasks(reader: _TextReader, pid: int) -> tuple[tuple[int, ...], int]:
    folder = f"/proc/{pid}/task"
    try:
        found = sorted(int(entry.name) for entry in reader.at(folder).iterdir() if entry.name.isdecimal())
    except OSError as error:
        reader.unread[folder] = why_unread(error)
        return (), 0
    return tuple(found[:MAX_TASKS]), max(0, len(found) - MAX_TASKS)


def _descendants(reader: _TextReader, pid: int) -> tuple[int, ...]:
    """The processes that `pid` and its descendants started: workers and backends of a server; empty if unreadable."""
    children: dict[int, list[int]] = {}
    proc = reader.at("/proc")
    try:
        processes = sorted(int(one.name) for one in proc.iterdir() if one.name.isdecimal())
    except OSError:
        return ()
    for process in processes:
        parent = parent_pid(process, proc)
        if parent is not None:  # None: ended meanwhile
            children.setdefault(parent, []).append(process)
    found: list[int] = []
    due = [pid]
    while due and len(found) < MAX_DESCENDANTS:
        own = children.pop(due.pop(), [])
        found.extend(own)
        due.extend(own)
    return tuple(sorted(found[:MAX_DESCENDANTS]))


def _read_process(reader: _TextReader, process: str) -> None:
    """Read the files of the process and its cgroups."""
    if process != "self":
        reader.read(f"/proc/{process}/stat")
        reader.read(f"/proc/{process}/status", keep=("State:", "Threads:", "Cpus_allowed_list:"))
    reader.read(f"/proc/{process}/cgroup")
    reader.read("/proc/self/mountinfo")
    _keep_cgroup_mounts(reader.files)
    for path in _cgroup_files(reader, process):
        reader.read(path)


def _keep_cgroup_mounts(files: dict[str, str]) -> None:
    """Drop other mounts, which may contain names of users and servers."""
    mounts = files.get("/proc/self/mountinfo")
    if mounts is not None:
        files["/proc/self/mountinfo"] = "".join(f"{line}\n" for line in mounts.splitlines() if " - cgroup" in line)


def _cgroup_files(reader: _TextReader, process: str) -> Iterator[str]:
    try:
        folders = cgroup_folders(reader.files, process)
    except SourceError:
        return  # the parser reports the reason
    for found in folders:
        for level in found.levels:
            yield from (f"{level}/{name}" for name in found.names)


def read_samples(artifacts: Iterable[Artifact]) -> tuple[HostSample, ...]:
    """Return the samples in time order. Raises SourceError if they are damaged or of different collections."""
    samples: list[HostSample] = []
    for artifact in sorted(artifacts, key=lambda artifact: artifact.name):
        try:
            sample = msgspec.json.decode(artifact.read(MAX_SAMPLE), type=HostSample)
        except UNDECODABLE as error:
            raise _refuse(artifact, f"not a sample of the host: {error}") from error
        if sample.schema_version != SCHEMA_VERSION:
            raise _refuse(artifact, f"a sample of version {sample.schema_version}; {SCHEMA_VERSION} is read")
        if samples and (sample.pid != samples[0].pid or sample.time < samples[-1].time):
            raise _refuse(artifact, "the samples are of different collections or out of order")
        sane = 0 < sample.ticks_per_second < 1 << 32 and 0 < sample.page_size < 1 << 32
        if not sane or len(sample.tasks) > MAX_TASKS:
            raise _refuse(artifact, "an inconsistent sample")
        samples.append(sample)
    return tuple(samples)


def _refuse(artifact: Artifact, what: str) -> SourceError:
    return SourceError(what, where=artifact.source, next_step="collect it again")
