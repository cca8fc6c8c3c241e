"""The catalogue as a page: each signal with its unit, its meaning and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latdoctor.collect import COLLECTORS
from latdoctor.collect.prometheus.collector import ANSWERING
from latdoctor.collect.prometheus.collector import TITLE as LIVE_TITLE
from latdoctor.collect.promql.changes import TOLD
from latdoctor.collect.promql.collector import TITLE
from latdoctor.detect.gives import given_by
from latdoctor.dialects.changes import told_by
from latdoctor.dialects.loader import shipped
from latdoctor.evidence.signals import TIERS, catalogue

# These two read pages and series by dialect: a signal comes from the server that shows it.
_BY_DIALECT = ("prometheus", "promql")


def sources() -> Mapping[str, tuple[str, ...]]:
    """Where each signal of the catalogue comes from: dialects, collectors, and the detectors that derive it."""
    found: dict[str, list[str]] = {name: [] for name in catalogue()}
    for title, signals in _given():
        for signal in sorted(signals):
            found[signal].append(title)
    return {name: tuple(titles) for name, titles in found.items()}


def _given() -> Iterator[tuple[str, frozenset[str]]]:
    """Everything that gives signals, by its title."""
    read_by = [(dialect.title, frozenset(dialect.signals)) for dialect in shipped()]
    direct = [(title, signals | told_by(signals)) for title, signals in read_by]
    direct += [(one.title, one.provides) for one in COLLECTORS if one.name not in _BY_DIALECT]
    direct += [(TITLE, TOLD), (LIVE_TITLE, frozenset([ANSWERING]))]
    yield from direct
    read = frozenset(signal for _, signals in direct for signal in signals)
    for name, signals in given_by(read).items():
        yield f"derived ({name.replace('_', ' ')})", signals


def page() -> str:
    """docs/signals.md."""
    where = sources()
    reached = sum(1 for titles in where.values() if titles)
    parts = [
        "# Signals",
        f"Every quantity that latdoctor speaks of: {len(where)} signals, {reached} of which some source gives.\n"
        "`python docs/generate.py` writes this page from `src/latdoctor/evidence/catalogue/`, the dialects, the\n"
        "collectors and the detectors.",
        "A server's or exporter's page is read live (`--server`), saved (`--metrics`) or out of the history of a\n"
        "Prometheus server (`--prometheus`): the same dialect gives the same signals. A value that a source does not\n"
        "show is not zero but unknown, and the report says why.",
    ]
    for tier in TIERS:
        parts.append(f"## {tier.capitalize()}\n\n" + "\n".join(_table(tier, where)))
    return "\n\n".join(parts) + "\n"


def _table(tier: str, where: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield "| signal | unit | meaning | comes from |"
    yield "|---|---|---|---|"
    for signal in sorted((one for one in catalogue().values() if one.tier == tier), key=lambda one: one.id):
        unit = signal.unit.name if signal.kind in ("value", "share", "distribution") else signal.kind
        kind = f"{unit}, distribution" if signal.kind == "distribution" else unit
        yield f"| `{signal.id}` | {kind} | {signal.says} | {', '.join(where[signal.id]) or 'nothing yet'} |"
