"""The signal catalogue: every quantity latdoctor speaks of, as data in `catalogue/*.yaml`.

A row is `name: {unit, tier, says}` with an optional `kind`; adding a signal is adding a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from latdoctor.errors import DefinitionError, Problem
from latdoctor.strict_yaml import Fields, load
from latdoctor.units import Unit, unit

TIERS = ("infrastructure", "framework", "application")


class SignalKind(StrEnum):
    """What the values of a signal are."""

    VALUE = "value"
    SHARE = "share"  # 0 to 1
    DEVIATION = "deviation"  # of either sign; other numbers are never negative
    DISTRIBUTION = "distribution"
    EVENT = "event"
    FLAG = "flag"  # 0 or 1
    TEXT = "text"
    P_VALUE = "p-value"  # of a statistical test


_FOLDER = Path(__file__).parent / "catalogue"


@dataclass(frozen=True, slots=True)
class Signal:
    """One catalogued quantity. Values are kept in the base of `unit`'s dimension."""

    id: str
    unit: Unit
    kind: SignalKind
    tier: str
    description: str

    @property
    def dimension(self) -> str:
        return self.unit.dimension


@cache
def catalogue() -> Mapping[str, Signal]:
    """Every signal by its id. Raises DefinitionError with all problems of the catalogue's files."""
    return read_catalogue(_FOLDER)


def read_catalogue(folder: Path) -> Mapping[str, Signal]:
    """The signals of the YAML files in `folder`. Raises DefinitionError with all problems of all of them."""
    problems: list[Problem] = []
    found: dict[str, Signal] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            root = load(path)
        except DefinitionError as error:
            problems.extend(error.problems)
            continue
        if not isinstance(root.value, dict):
            problems.append(Problem(root.where, "the file must be a mapping of signals"))
            continue
        for name, node in root.value.items():
            if name in found:
                problems.append(Problem(node.where, f"the signal {name!r} is catalogued twice"))
            found[name] = _signal(name, Fields(node, problems, f"signal {name}"))
    if problems:
        raise DefinitionError(problems)
    return found


def _signal(name: str, fields: Fields) -> Signal:
    kind = SignalKind(fields.choice("kind", tuple(SignalKind), SignalKind.VALUE))
    default = "text" if kind is SignalKind.TEXT else "count"
    row = Signal(
        id=name,
        unit=fields.scalar("unit", unit, unit(default)),
        kind=kind,
        tier=fields.choice("tier", TIERS, TIERS[0], required=True),
        description=fields.text("description", required=True),
    )
    fields.finish()
    return row
