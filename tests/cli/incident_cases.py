"""Incidents as the files an engineer has in hand, with what the answer must say: `incidents/CAUSE/NAME/`.

`expect.yaml` has the options beside the files, the level, the causes that must not be named, and where the form of the
files comes from. Figures and names are made up; the folder `none` holds inputs in which nothing may be named.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER = Path(__file__).parent / "incidents"
NONE, EXPECT = "none", "expect.yaml"


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in `expect.yaml`. `level` is empty where the answer may be of any."""

    origin: str
    options: tuple[str, ...] = ()
    level: str = ""
    never: tuple[str, ...] = ()


class IncidentCase(Struct, frozen=True):
    """One folder. `cause` is NONE where nothing may be named."""

    cause: str
    folder: Path
    expected: Expected

    @property
    def name(self) -> str:
        return f"{self.cause}/{self.folder.name}"

    @property
    def arguments(self) -> list[str]:
        files = sorted(str(path) for path in self.folder.iterdir() if path.name != EXPECT)
        return ["diagnose", *files, *self.expected.options]


def incident_cases() -> tuple[IncidentCase, ...]:
    """All cases, in the order of their names."""
    return tuple(
        IncidentCase(path.parent.parent.name, path.parent, msgspec.yaml.decode(path.read_bytes(), type=Expected))
        for path in sorted(FOLDER.glob(f"*/*/{EXPECT}"))
    )
