"""Out-of-memory kills of the kernel: what its lines state, and which of them are one kill.

A kill writes several lines, of which an extract has any: the limit of the control group that was reached, the group
(`Task in A killed as a result of limit of B` before Linux 5.0, `oom-kill:constraint=…` since), and the process. Memory
of a control group has nothing to do with that of the machine, which may be nearly empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from latdoctor.evidence.model import Value


class OomScope(StrEnum):
    """Whose memory was exhausted."""

    CONTAINER = "container"  # a control group reached its limit
    MACHINE = "machine"
    NODES = "nodes"  # the NUMA nodes that the process may use
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process was killed. `cgroup` is the group whose limit was reached, `task_cgroup` that of the process itself;
    each is empty where the line does not name it.
    """

    pid: str
    process: str
    scope: OomScope = OomScope.MACHINE
    cgroup: str = ""
    task_cgroup: str = ""


@dataclass(frozen=True, slots=True)
class CgroupAtLimit:
    """A control group uses its whole limit, bytes. `cgroup` names it where the line does; sizes are None otherwise."""

    limit: float | None = None
    usage: float | None = None
    cgroup: str = ""
    task_cgroup: str = ""


_KILLED = re.compile(
    r"(?P<cgroup>Memory cgroup out|Out) of memory.{0,80}?: "
    r"Kill(?:ed)? process (?P<pid>\d{1,10}),? \((?P<name>[^)]{0,64})\)"
)
# Before Linux 5.0 a second line names what was killed in the end: the process, or a child of it.
_KILLED_TOO = re.compile(r"Killed process (\d{1,10}) \(([^)]{0,64})\)")
_CONSTRAINT = re.compile(r"oom-kill:constraint=CONSTRAINT_([A-Z_]{1,40}),")
_FIELD = re.compile(r"(?:^|,)(oom_memcg|task_memcg|task|pid)=([^,]{1,400})")
_AT_LIMIT = re.compile(r"memory: usage (\d{1,18})kB, limit (\d{1,18})kB, failcnt \d")
_BLAMED = re.compile(r"Task in (\S{1,400}) killed as a result of limit of (\S{1,400})")
_STATS = re.compile(r"Memory cgroup stats for (/[^\s:]{1,400}):")
_SCOPES = {
    "MEMCG": OomScope.CONTAINER,
    "NONE": OomScope.MACHINE,
    "CPUSET": OomScope.NODES,
    "MEMORY_POLICY": OomScope.NODES,
}
# Every line of a kill contains one of these.
HINTS = (
    rb"[Kk]ill(?:ed)? process|oom-kill:constraint=|kB, failcnt |killed as a result of limit of"
    rb"|Memory cgroup stats for /"
)
_ROOT = "/"
_KIB = 1024.0
_UNLIMITED = 2.0**60  # bytes: the kernel writes the largest possible number where there is no limit
# Parts of a control group's path: of a pod, with `-` or, under systemd, `_` in its id; of a container.
_POD = re.compile(r"\bpod([0-9a-f][0-9a-f_-]{3,40})")
_CONTAINER = re.compile(r"/(?:[a-z-]{1,40}-)?([0-9a-f]{12,64})(?:\.scope)?$")


def kill_in(message: str) -> OomKill | CgroupAtLimit | None:
    """What a kernel message states about a kill, or None."""
    if found := _KILLED.match(message):
        scope = OomScope.CONTAINER if found["cgroup"].startswith("Memory") else OomScope.MACHINE
        return OomKill(found["pid"], found["name"], scope)
    if found := _CONSTRAINT.match(message):
        fields = dict(_FIELD.findall(message[:2000]))
        if "pid" not in fields:
            return None
        scope = _SCOPES.get(found[1], OomScope.UNKNOWN)
        cgroup, task_cgroup = fields.get("oom_memcg", ""), fields.get("task_memcg", "")
        return OomKill(fields["pid"], fields.get("task", ""), scope, cgroup, task_cgroup)
    if found := _AT_LIMIT.match(message):
        limit = float(found[2]) * _KIB
        return CgroupAtLimit(limit if limit < _UNLIMITED else None, float(found[1]) * _KIB)
    if found := _BLAMED.match(message):
        return CgroupAtLimit(cgroup=found[2], task_cgroup=found[1])
    if found := _STATS.match(message):
        return CgroupAtLimit(cgroup=found[1])
    if found := _KILLED_TOO.match(message):
        return OomKill(found[1], found[2], OomScope.UNKNOWN)
    return None


_REACH = 400  # lines from the limit to the kill: the tasks of the group are listed between them
_SAME = 8  # lines within which a second line about the same process, or about a child of it, is the same kill


class OomKills:
    """Joins the lines of each kill in one log. Mutable."""

    def __init__(self) -> None:
        self._group: tuple[CgroupAtLimit, int] | None = None
        self._last: tuple[OomKill, int] | None = None

    def note_group(self, group: CgroupAtLimit, number: int) -> None:
        """Record a group at its limit; `number` is that of the line."""
        before = self._group[0] if self._group and number - self._group[1] <= _SAME else CgroupAtLimit()
        self._group = (
            CgroupAtLimit(
                before.limit if group.limit is None else group.limit,
                before.usage if group.usage is None else group.usage,
                before.cgroup or group.cgroup,
                before.task_cgroup or group.task_cgroup,
            ),
            number,
        )

    def fields(self, kill: OomKill, number: int) -> dict[str, Value] | None:
        """The fields of the event for `kill`; None where it repeats the last one."""
        last, where = self._last or (None, -_SAME - 1)
        near = last is not None and number - where <= _SAME
        if near and last is not None and (kill.pid == last.pid or kill.scope == OomScope.UNKNOWN):
            self._last = (last, number)
            return None
        group = self._group[0] if self._group and number - self._group[1] <= _REACH else None
        self._group = None
        if kill.scope == OomScope.UNKNOWN and group:
            kill = replace(kill, scope=OomScope.CONTAINER)
        self._last = (kill, number)
        fields: dict[str, Value] = {"pid": kill.pid, "process": kill.process, "scope": kill.scope.value}
        if kill.scope != OomScope.CONTAINER:
            return {key: value for key, value in fields.items() if value != ""}
        return fields | _of_group(kill, group or CgroupAtLimit())


def _of_group(kill: OomKill, group: CgroupAtLimit) -> dict[str, Value]:
    """The group that reached its limit, its limit and its use in bytes, and the pod and the container that it is of."""
    cgroup = kill.cgroup or group.cgroup
    path = kill.task_cgroup or group.task_cgroup or cgroup
    pod, container = _POD.search(path) or _POD.search(cgroup), _CONTAINER.search(path)
    named = {
        "cgroup": cgroup if cgroup != _ROOT else "",
        "pod": pod[1].replace("_", "-").strip("-") if pod else "",
        "container": container[1] if container else "",
    }
    sizes = {"limit": group.limit, "usage": group.usage}
    known: dict[str, Value] = {key: text for key, text in named.items() if text}
    return known | {key: size for key, size in sizes.items() if size}
