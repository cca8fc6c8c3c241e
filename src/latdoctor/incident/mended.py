"""The runs of an incident, in short: what each changed, its figures before and after, and whether it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from latdoctor.evidence.signals import catalogue
from latdoctor.incident.document import Changed, Figure, RunTold
from latdoctor.incident.elapsed import between, rfc3339
from latdoctor.incident.moments import value
from latdoctor.journal.entry import Entry
from latdoctor.remedy.history import RunState, Touched
from latdoctor.remedy.result import Measure
from latdoctor.text import clean

REFUSED = "refused"
_MEASURED = ("before.measured", "verify.passed", "verify.failed")  # the later one has what was seen after


class _Refused(Struct, frozen=True):
    guard: str
    reason: str


class _Measured(Struct, frozen=True):
    measures: tuple[Measure, ...] = ()


def mended(joined: Iterable[str], runs: Mapping[str, RunState], entries: Sequence[Entry]) -> tuple[RunTold, ...]:
    """The runs that `joined` names, in that order; each once."""
    by_run: dict[str, list[Entry]] = {name: [] for name in joined}
    for entry in entries:
        if entry.run in by_run:
            by_run[entry.run].append(entry)
    told = (_run(runs[name], own) if name in runs else _never_begun(name, own) for name, own in by_run.items() if own)
    return tuple(told)


def _run(run: RunState, entries: Sequence[Entry]) -> RunTold:
    plan = run.plan
    opened = next(entry for entry in entries if entry.kind == "run.opened")
    closed = next((entry for entry in reversed(entries) if entry.kind == "run.closed"), None)
    return RunTold(
        id=run.id,
        playbook=clean(plan.playbook, 100),
        title=clean(plan.title, 200),
        target=clean(plan.target.name, 200),
        risk=clean(plan.risk, 20),
        cause=clean(plan.because.cause, 100) if plan.because else "",
        outcome=run.outcome or "",
        reason=clean(run.reason, 600),
        opened_at=rfc3339(run.opened_at),
        ended_at=closed.at if closed else None,
        seconds=between(opened, closed).seconds if closed else None,
        changes=tuple(_changes(run)),
        figures=_figures(entries),
    )


def _never_begun(name: str, entries: Sequence[Entry]) -> RunTold:
    """A run that a guard refused leaves that one entry: not even which playbook it was."""
    refused = next((entry for entry in entries if entry.kind == "run.refused"), None)
    said = msgspec.json.decode(refused.body, type=_Refused) if refused else None
    reason = clean(f"{said.guard}: {said.reason}", 600) if said else ""
    return RunTold(
        id=name,
        playbook="",
        title="",
        target="",
        risk="",
        cause="",
        outcome=REFUSED if said else "",
        reason=reason,
        opened_at=entries[0].at,
        ended_at=entries[-1].at if said else None,
        seconds=None,
        changes=(),
        figures=(),
    )


def _changes(run: RunState) -> Iterable[Changed]:
    standing = set(run.standing)
    for touched in dict.fromkeys([*run.intended, *sorted(run.undone, key=_place)]):
        change = run.change(touched)
        for field in change.fields:
            yield Changed(
                step=clean(change.step, 100),
                resource=clean(change.resource, 200),
                name=clean(field.name, 100),
                before=value(field.before),
                after=value(field.after),
                stands=touched in standing,
            )


def _place(touched: Touched) -> tuple[int, int]:
    return touched.stage, touched.index


def _figures(entries: Sequence[Entry]) -> tuple[Figure, ...]:
    """From the latest entry that has them: one from before, where a run did not come further."""
    for entry in reversed(entries):
        if entry.kind in _MEASURED:
            found = msgspec.json.decode(entry.body, type=_Measured).measures
            if found:
                return tuple(_figure(one) for one in found)
    return ()


def _figure(one: Measure) -> Figure:
    known = catalogue().get(one.signal)
    return Figure(clean(one.signal, 100), known.says if known else "", clean(one.subject, 200), one.before, one.after)
