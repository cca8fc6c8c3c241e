"""CPU and memory limits on a running process, held by a helper process and lifted when that ends.

The helper is this module: `python -m latdoctor.lab.faults.process_limits cpu|memory PID SHARE LIFETIME` prints
"in force" once the limit is active, and lifts it at the end of standard input, or after LIFETIME seconds.

A CPU quota is a control group around the process. Version 1: the group is created below the present one, so that limits
above it still count. Version 2 allows processes in leaves only: there it is created beside the present one (below the
root, where the process is in the root).
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.page_reclaim import ROUND_SECONDS, Reclaim
from latdoctor.sanitize import clean

IN_FORCE = "in force"
HELPER = "latdoctor.lab.faults.process_limits"
PERIOD_US = 100_000  # the kernel's default
LEAST_QUOTA_US = 1_000  # the kernel's minimum
CONTROL = "cgroup.subtree_control"
_GROUP = re.compile(r"latdoctor-quota-\d+-(\d+)")  # process, helper process
_ATTEMPTS = 100  # a thread that is just ending keeps its group for a moment
_PAUSE = 0.02

Done = TypeVar("Done")


class LimitKind(StrEnum):
    """The limited resource."""

    CPU = "cpu"
    MEMORY = "memory"


@contextmanager
def cpu_quota(pid: int, share: float, lifetime: float) -> Iterator[None]:
    """The process may use `share` CPUs (0.5 is half of one), in a control group of its own.

    Children that it starts meanwhile share the quota. Ends after `lifetime` seconds at the latest. Needs a writable
    control group file system (root), of version 1 or 2. Raises UsageError for bad numbers, OperationError that names
    what is missing.
    """
    with _limited(LimitKind.CPU, pid, share, lifetime):
        yield


@contextmanager
def memory_squeeze(pid: int, share: float, lifetime: float) -> Iterator[None]:
    """The process may keep `share` (0..1) of the file pages that it has mapped: libraries, the model.

    The rest is reclaimed again and again, as under a memory limit below the working set, and comes back from the disk
    through major faults. It never runs the machine out of memory: only pages that are also on disk are reclaimed. The
    kernel spares pages that other processes have mapped too: two replicas shield each other, and where most pages are
    such ones it is refused. Ends after `lifetime` seconds at the latest.

    Needs Linux 5.10, CAP_SYS_NICE and the right to trace the process (root).
    Raises UsageError for bad numbers, OperationError that names what is missing.
    """
    if not 0 <= share < 1:
        raise UsageError(f"a share of {share:g} keeps everything", next_step="a share from 0 to below 1")
    with _limited(LimitKind.MEMORY, pid, share, lifetime):
        yield


@contextmanager
def _limited(kind: LimitKind, pid: int, share: float, lifetime: float) -> Iterator[None]:
    if pid <= 1 or not 0 <= share <= 1024 or not 0 < lifetime <= 3600:
        raise UsageError(f"a limit of {share:g} for process {pid} over {lifetime:g} s makes no sense")
    command = [sys.executable, "-m", HELPER, kind, str(pid), repr(share), repr(lifetime)]
    with subprocess.Popen(  # noqa: S603 — our own interpreter and module
        command,
        stdin=subprocess.PIPE,  # open in this process alone: its end is the end of the limit
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which then closes the pipe
    ) as helper:
        try:
            if helper.stdout is None or helper.stdout.readline().strip() != IN_FORCE:
                raise OperationError(_last_line(helper))
            yield
        finally:
            _end(helper, kind, pid)


def _end(helper: subprocess.Popen[str], kind: LimitKind, pid: int) -> None:
    with suppress(BrokenPipeError):
        if helper.stdin is not None:
            helper.stdin.close()
    helper.wait()
    if helper.returncode < 0 and kind is LimitKind.CPU:
        clear(pid)  # the helper process was killed
    if helper.returncode > 0 and sys.exc_info()[1] is None:
        raise OperationError(_last_line(helper))


def _last_line(helper: subprocess.Popen[str]) -> str:
    lines = (helper.stderr.read() if helper.stderr else "").strip().splitlines()
    return clean(lines[-1], 300) if lines else "the helper process ended without a message"


class CgroupLocation(Struct, frozen=True):
    """The group of the process, `home`, and the parent for the group with the quota."""

    version: int
    home: str
    parent: str


def locate_cgroup(cgroup: str, mountinfo: str) -> CgroupLocation:
    """From `/proc/PID/cgroup` and `/proc/self/mountinfo`. Raises OperationError where there is no cpu controller."""
    mounts = [found for line in mountinfo.splitlines() if (found := _mount(line))]
    paths = {names: path for _, names, path in (line.split(":", 2) for line in cgroup.splitlines() if ":" in line)}
    for names, path in paths.items():
        for point, kind, options in mounts:
            if kind == "cgroup" and "cpu" in names.split(",") and "cpu" in options:
                home = _below(point, path)
                return CgroupLocation(1, home, home)
    for point, kind, _ in mounts:
        if kind == "cgroup2" and "" in paths:
            home = _below(point, paths[""])
            return CgroupLocation(2, home, home if paths[""] == "/" else home.rpartition("/")[0])
    raise OperationError("a CPU quota needs the cpu controller of control groups, and none is mounted here")


def _mount(line: str) -> tuple[str, str, list[str]] | None:
    before, separator, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if not separator or len(fields) < 5 or len(kind) < 3 or fields[3] != "/":
        return None  # a mount of a part of the tree does not show where the process is
    return fields[4], kind[0], kind[2].split(",")


def _below(point: str, path: str) -> str:
    if ".." in path.split("/"):
        raise OperationError("the process is in a control group that is not visible from here")
    return point.rstrip("/") + path.rstrip("/")


@contextmanager
def quota_group(pid: int, share: float) -> Iterator[Path]:
    """Limits the process and all its threads to `share` CPUs. Raises OperationError that names what is missing."""
    clear(pid)
    found = _locate(pid)
    group = Path(found.parent) / f"latdoctor-quota-{pid}-{os.getpid()}"
    enabled = _reachable(group, lambda: _enable_controller(found))
    try:
        _reachable(group, group.mkdir)
        try:
            _reachable(group, lambda: _set_quota(group, found.version, share))
            _reachable(group, lambda: (group / "cgroup.procs").write_text(str(pid)))
            yield group
        finally:
            _remove_group(group, Path(found.home))
    finally:
        if enabled:
            (Path(found.parent) / CONTROL).write_text("-cpu")


def _reachable(group: Path, step: Callable[[], Done]) -> Done:
    try:
        return step()
    except OSError as error:
        what = f"a CPU quota needs a control group that may be written: {error.strerror}"
        raise OperationError(what, where=error.filename or str(group), next_step="run it as root") from error


def clear(pid: int) -> None:
    """Removes the group that a killed helper process has left behind around the process.

    Raises OperationError where a quota is active on the process now.
    """
    found = _locate(pid)
    name = found.home.rpartition("/")[2]
    own = _GROUP.fullmatch(name)
    if own is None:
        return
    with suppress(OSError):
        if HELPER.encode() in Path(f"/proc/{own[1]}/cmdline").read_bytes():
            raise OperationError(f"a quota is at work on process {pid} already", next_step="wait for its end")
    group = Path(found.home)
    _remove_group(group, group.parent)


def _locate(pid: int) -> CgroupLocation:
    try:
        return locate_cgroup(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError as error:
        raise OperationError(f"process {pid} cannot be read: {error.strerror}") from error


def _enable_controller(found: CgroupLocation) -> bool:
    """Enables the controller for groups below the parent; whether that was necessary (never in version 1)."""
    control = Path(found.parent) / CONTROL
    if found.version == 1 or "cpu" in control.read_text().split():
        return False
    control.write_text("+cpu")
    return True


def _set_quota(group: Path, version: int, share: float) -> None:
    quota = max(LEAST_QUOTA_US, round(share * PERIOD_US))
    if version == 1:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")


def _remove_group(group: Path, home: Path) -> None:
    """Moves every process of the group to `home`, and removes the group. Raises OperationError where that fails."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    (home / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_PAUSE)
        else:
            return
    raise OperationError("the control group of the quota cannot be removed", where=str(group))


def main(arguments: Sequence[str]) -> int:
    """The helper process."""
    kind, pid, share, lifetime = arguments[0], int(arguments[1]), float(arguments[2]), float(arguments[3])
    # End of input ends the limit. A signal to the process group must not end this process first.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end = time.monotonic() + lifetime
    try:
        if kind == LimitKind.CPU:
            with quota_group(pid, share):
                _hold(end, lifetime, lambda: True)
        else:
            with Reclaim(pid, share) as reclaim:
                reclaim.check()
                reclaim.round()
                _hold(end, ROUND_SECONDS, reclaim.round)
    except OperationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _hold(end: float, every: float, again: Callable[[], bool]) -> None:
    """Until `end`, the end of standard input, or until `again`, called every `every` seconds, returns False."""
    print(IN_FORCE, flush=True)
    while (left := end - time.monotonic()) > 0:
        readable, _, _ = select.select([sys.stdin], [], [], min(every, left))
        if readable or not again():
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
