"""Paths of a process's control groups, versions 1 and 2, from its `cgroup` file and the mounts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode

MAX_LEVELS = 12
_FILES = {
    ("cpu", 2): ("cpu.stat", "cpu.max"),
    ("cpu", 1): ("cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ("memory", 2): ("memory.current", "memory.max", "memory.stat", "memory.events"),
    ("memory", 1): ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.stat", "memory.oom_control"),
}
_OCTAL = re.compile(r"\\([0-7]{3})")  # mountinfo writes a blank as \040


@dataclass(frozen=True, slots=True)
class CgroupFolders:
    """The folders of one controller for a process, innermost first, up to the mount point."""

    controller: str  # "cpu" or "memory"
    version: int
    levels: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return _FILES[self.controller, self.version]


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    root: str
    point: str
    controllers: frozenset[str]


def cgroup_folders(files: Mapping[str, str], process: str) -> tuple[CgroupFolders, ...]:
    """Return the cgroup folders of a process (a number or `self`). Raises SourceError if they are unknown."""
    path = f"/proc/{process}/cgroup"
    if path not in files or "/proc/self/mountinfo" not in files:
        raise SourceError(f"{path} or the mounts cannot be read")
    mounts = [mount for line in files["/proc/self/mountinfo"].splitlines() if (mount := _mount(line))]
    return tuple(_hierarchy_folders(controller, files[path], mounts) for controller in ("cpu", "memory"))


def _mount(line: str) -> _Mount | None:
    """Parse a line of mountinfo: `36 35 0:30 ROOT POINT rw - cgroup cgroup rw,cpu` (proc_pid_mountinfo(5))."""
    before, separator, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if not separator or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
        return None
    root, point = (_OCTAL.sub(lambda found: chr(int(found[1], 8)), text) for text in fields[3:5])
    return _Mount(2 if kind[0] == "cgroup2" else 1, root, point, frozenset(kind[2].split(",")))


def _hierarchy_folders(controller: str, text: str, mounts: Sequence[_Mount]) -> CgroupFolders:
    """Version 1 if the controller is mounted that way, else version 2 (a machine may have both)."""
    unified: str | None = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            for mount in mounts:
                if mount.version == 1 and controller in mount.controllers:
                    return CgroupFolders(controller, 1, _levels(mount, path))
        elif number == "0" and not names:
            unified = path
    for mount in mounts:
        if mount.version == 2 and unified is not None:
            return CgroupFolders(controller, 2, _levels(mount, unified))
    raise SourceError(f"the cgroup of the {controller} controller is not mounted here", code=GapCode.ABSENT)


def _levels(mount: _Mount, path: str) -> tuple[str, ...]:
    if ".." in path.split("/"):
        raise SourceError("the process is in a cgroup that this container cannot see", code=GapCode.PERMISSION)
    root = "" if mount.root == "/" else mount.root.rstrip("/")
    below = path[len(root) :] if path == root or path.startswith(f"{root}/") else path
    parts = [part for part in below.split("/") if part]
    point = mount.point.rstrip("/")
    return tuple("/".join((point, *parts[:length])) for length in range(len(parts), -1, -1))[:MAX_LEVELS]
