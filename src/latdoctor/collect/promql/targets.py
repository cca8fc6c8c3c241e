"""The targets of a Prometheus server that speak a dialect, those that serve requests first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from latdoctor.collect.promql.answers import Answer
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.model import Dialect
from latdoctor.text import clean


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What Prometheus scrapes: one server or exporter."""

    instance: str
    job: str

    @staticmethod
    def of(labels: Mapping[str, str]) -> Target:
        return Target(labels.get("instance", ""), labels.get("job", ""))


def names_of(targets: Iterable[Target], otherwise: str) -> dict[Target, str]:
    """How each is called: by its instance, and by its job too where two jobs scrape one instance."""
    known = sorted(targets)
    seen = [one.instance for one in known]
    return {
        one: clean((one.instance or otherwise) + (f"/{one.job}" if seen.count(one.instance) > 1 else ""), 200)
        for one in known
    }


def shown_by(answers: Sequence[Answer]) -> dict[Target, frozenset[str]]:
    """The sample names of each target."""
    found: dict[Target, set[str]] = {}
    for line in (line for answer in answers for line in answer.lines):
        name = line.labels.get("__name__", "")
        if name:
            found.setdefault(Target.of(line.labels), set()).add(name)
    return {target: frozenset(names) for target, names in found.items()}


def spoken_by(names: frozenset[str]) -> tuple[Dialect, ...]:
    """The dialects whose families are among the sample `names`."""
    return tuple(
        dialect
        for dialect in shipped()
        if any(family in names or f"{family}_bucket" in names for family in dialect.recognise)
    )


def ranked(shown: Mapping[Target, frozenset[str]]) -> list[Target]:
    """The targets that speak a dialect: servers before GPU exporters, and those before what tells of machines only.

    A company has more machines than servers, and only so many targets are read.
    """
    ranks = {target: _rank(spoken_by(names)) for target, names in shown.items()}
    return sorted((target for target in shown if ranks[target]), key=lambda target: (ranks[target], target))


def serving(shown: Mapping[Target, frozenset[str]]) -> list[Target]:
    """Those that serve requests; where none does, all that speak a dialect."""
    found = ranked(shown)
    return [target for target in found if _rank(spoken_by(shown[target])) == 1] or found


def _rank(dialects: Sequence[Dialect]) -> int:
    """1 is read first; 0 is for no dialect at all."""
    signals = frozenset(signal for dialect in dialects for signal in dialect.signals)
    if not signals:
        return 0
    if any(not signal.startswith(("gpu.", "host.")) for signal in signals):
        return 1
    return 2 if any(signal.startswith("gpu.") for signal in signals) else 3
