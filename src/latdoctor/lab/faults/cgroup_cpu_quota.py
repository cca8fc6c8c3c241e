"""A control group with a CPU quota around one process, version 1 and 2, and its clean end.

Version 1: the group is made below the one that the process is in, so that limits above it keep counting. Version 2
allows processes in leaves only: there it is made beside that one (below the root, where the process is in the root).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from latdoctor.errors import OperationError

Done = TypeVar("Done")

PERIOD_US = 100_000  # the kernel's default
LEAST_QUOTA_US = 1_000  # the least that the kernel takes
CONTROL = "cgroup.subtree_control"
_OWN = re.compile(r"latdoctor-quota-\d+-(\d+)")  # of the process, by the keeper
_TRIES = 100  # a thread that is just ending holds its group for a moment
_PAUSE = 0.02


class CgroupLocation(Struct, frozen=True):
    """Where the process is now, and where its group is to be."""

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
        raise OperationError("the process is in a control group that cannot be seen from here")
    return point.rstrip("/") + path.rstrip("/")


@contextmanager
def quota_group(pid: int, share: float) -> Iterator[Path]:
    """Holds the process and all its threads to `share` processors. Raises OperationError that says what is missing."""
    clear(pid)
    found = _place_of(pid)
    group = Path(found.parent) / f"latdoctor-quota-{pid}-{os.getpid()}"
    turned_on = _reachable(group, lambda: _turn_on(found))
    try:
        _reachable(group, group.mkdir)
        try:
            _reachable(group, lambda: _limit(group, found.version, share))
            _reachable(group, lambda: (group / "cgroup.procs").write_text(str(pid)))
            yield group
        finally:
            _dissolve(group, Path(found.home))
    finally:
        if turned_on:
            (Path(found.parent) / CONTROL).write_text("-cpu")


def _reachable(group: Path, step: Callable[[], Done]) -> Done:
    try:
        return step()
    except OSError as error:
        what = f"a CPU quota needs a control group that may be written: {error.strerror}"
        raise OperationError(what, where=error.filename or str(group), next_step="run it as root") from error


def clear(pid: int) -> None:
    """Takes the process out of a group that a killed keeper has left behind.

    Raises OperationError where a quota is at work on the process now.
    """
    found = _place_of(pid)
    name = found.home.rpartition("/")[2]
    own = _OWN.fullmatch(name)
    if own is None:
        return
    with suppress(OSError):
        if b"latdoctor.lab.faults.limit_holder" in Path(f"/proc/{own[1]}/cmdline").read_bytes():
            raise OperationError(f"a quota is at work on process {pid} already", next_step="wait for its end")
    group = Path(found.home)
    _dissolve(group, group.parent)


def _place_of(pid: int) -> CgroupLocation:
    try:
        return locate_cgroup(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError as error:
        raise OperationError(f"process {pid} cannot be read: {error.strerror}") from error


def _turn_on(found: CgroupLocation) -> bool:
    """Whether the controller had to be handed down to the group; version 1 has no such thing."""
    control = Path(found.parent) / CONTROL
    if found.version == 1 or "cpu" in control.read_text().split():
        return False
    control.write_text("+cpu")
    return True


def _limit(group: Path, version: int, share: float) -> None:
    quota = max(LEAST_QUOTA_US, round(share * PERIOD_US))
    if version == 1:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")


def _dissolve(group: Path, home: Path) -> None:
    """Everything in the group goes home, and the group goes. Raises OperationError where it does not."""
    for _ in range(_TRIES):
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
