"""The diagnoses of an incident, in short, and what none of them could see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from latdoctor.decoding import UNDECODABLE
from latdoctor.incident import events
from latdoctor.incident.document import Look
from latdoctor.incident.elapsed import Count, rfc3339
from latdoctor.incident.state import body
from latdoctor.incident.stopwatch import is_time
from latdoctor.journal.entry import Entry
from latdoctor.text import clean


def looks(entries: Iterable[Entry], count: Count) -> tuple[Look, ...]:
    """Every diagnosis, in the order of the journal; one that another version wrote otherwise is left out here, and
    told among the moments.
    """
    found = []
    for entry in entries:
        if entry.kind == events.DIAGNOSED:
            try:
                said = body(entry, events.Diagnosed)
            except UNDECODABLE:
                continue
            found.append(_look(entry, said, count))
    return tuple(found)


def _look(entry: Entry, said: events.Diagnosed, count: Count) -> Look:
    return Look(
        at=entry.at,
        seconds=count.of(entry).seconds,
        digest=entry.digest,
        run_id=clean(said.run_id, 100),
        target=clean(said.target, 200),
        level=clean(said.level, 20),
        says=clean(said.says, 400),
        answer=clean(said.answer, 40),
        causes=tuple(_cause(cause) for cause in said.causes),
        fired=_cleaned(said.fired),
        unseen=_cleaned(said.unseen),
        since=rfc3339(said.since) if said.since is not None and is_time(said.since) else None,
        document=clean(said.document, 300),
        bundle=clean(said.bundle, 300),
    )


def _cause(cause: events.Named) -> events.Named:
    return events.Named(
        id=clean(cause.id, 100),
        title=clean(cause.title, 200),
        tier=clean(cause.tier, 40),
        probability=min(1.0, max(0.0, cause.probability)),
        named=cause.named,
        subjects=_cleaned(cause.subjects),
        because=_cleaned(cause.because),
        against=_cleaned(cause.against),
        playbooks=_cleaned(cause.playbooks),
    )


def _cleaned(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(clean(text, 400) for text in texts)


def unseen(found: Sequence[Look]) -> tuple[str, ...]:
    """What the last look could not see, and what no earlier one did: each once."""
    if not found:
        return ("nothing was diagnosed",)
    ever = dict.fromkeys(reason for look in found for reason in look.unseen)
    last = set(found[-1].unseen)
    return tuple(reason if reason in last else f"{reason} (not so in the last look)" for reason in ever)
