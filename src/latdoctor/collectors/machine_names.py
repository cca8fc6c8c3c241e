"""The names of machines: which of them mean the same machine (`node-a`, `Node-A.example.com`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|.*:.*")


class MachineNames:
    """The machines that some names stand for. A short name is that of the only full name that begins with it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._machines: Mapping[str, str] = _machines({name.lower().rstrip(".") for name in names})

    @property
    def distinct(self) -> tuple[str, ...]:
        """The machines, sorted."""
        return tuple(sorted(set(self._machines.values())))

    def of(self, name: str) -> str:
        """The machine of `name`; empty for an empty one."""
        lower = name.lower().rstrip(".")
        return self._machines.get(lower, lower)

    def within(self, file_name: str) -> set[str]:
        """The machines that the name of a file or folder contains as a word: `node-a` of `node-a_dmesg.log`."""
        text = file_name.lower()
        return {
            machine
            for name, machine in self._machines.items()
            if re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text)
        }


def _machines(names: set[str]) -> dict[str, str]:
    full: dict[str, set[str]] = {}
    for name in names:
        if "." in name and not _ADDRESS.fullmatch(name):
            full.setdefault(name.partition(".")[0], set()).add(name)
    found = {}
    for name in names:
        short = name.partition(".")[0]
        alone = len(full.get(short, ())) < 2 and not _ADDRESS.fullmatch(name)
        found[name] = short if alone else name
    return found
