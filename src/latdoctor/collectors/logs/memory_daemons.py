"""Kills for memory by daemons in place of the kernel: systemd-oomd and earlyoom. Pure.

What they kill is a process or a whole control group. Other lines that may report such a kill, as those of a kubelet
that evicts pods, are suspected only (`suspected_errors.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from latdoctor.evidence.model import Value

# On bytes; every such line contains one.
HINTS = rb"due to memory (?:pressure|used)|[Ss]ending SIG(?:TERM|KILL) to process"
_OF_SYSTEMD = re.compile(r"Killed (/\S{1,400}) due to memory (?:pressure|used)\b")
_OF_EARLYOOM = re.compile(r"sending SIG(?:TERM|KILL) to process (\d{1,10}) (?:uid \d{1,10} )?[\"'](.{1,64}?)[\"']")


@dataclass(frozen=True, slots=True)
class DaemonKill:
    """A daemon killed a process, or all of a control group; what the line does not name is empty."""

    pid: str = ""
    process: str = ""
    cgroup: str = ""

    def fields(self) -> dict[str, Value]:
        """The fields of the event."""
        known = {"pid": self.pid, "process": self.process, "cgroup": self.cgroup}
        return {name: text for name, text in known.items() if text}


def daemon_kill_in(message: str) -> DaemonKill | None:
    """The kill that `message`, a line of a program, reports, or None."""
    if found := _OF_SYSTEMD.match(message):
        return DaemonKill(cgroup=found[1])
    if found := _OF_EARLYOOM.match(message):
        return DaemonKill(found[1], found[2])
    return None
