"""One SOP from its file, which is strict YAML: all that is wrong in it, each with file:line."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from latdoctor.conditions.ast import Condition, Reference, comparisons
from latdoctor.conditions.parser import parse_condition
from latdoctor.errors import DefinitionError, OperationError, Problem, UsageError
from latdoctor.incident import events
from latdoctor.incident.lookup import folder_of
from latdoctor.incident.sop.model import ACTIONS, KINDS, STEPS, Sign, Sop, SopStage
from latdoctor.incident.state import Incident
from latdoctor.journal.state_dir import ensure_private, fsync_directory
from latdoctor.resources import folder
from latdoctor.sanitize import clean
from latdoctor.strict_yaml import Fields, Node, add, defined, definition, one_of
from latdoctor.units import parse_duration

LONGEST = 30 * 86_400.0  # seconds: nothing is due later than a month after the start
MOST = 50  # stages, and signs of one

_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._ -][A-Za-z0-9]+)*")
# References that a single sample cannot provide.
_UNREMEMBERED = ("baseline", "before")


def read_sop(path: Path, problems: list[Problem]) -> Sop | None:
    """SOP in `path`; problems are added to `problems`. None where not even an id could be read."""
    read_in = definition(path, "an SOP", problems)
    if read_in is None:
        return None
    fields, raw = read_in
    found = _sop(fields, raw)
    fields.finish()
    fields.must_be_named(found.id, path)
    return found if found.id else None


def _sop(fields: Fields, raw: bytes) -> Sop:
    stages = tuple(_stages(fields))
    _check_order(stages, fields)
    return Sop(
        id=fields.scalar("id", identifier, "", required=True),
        title=fields.text("title", required=True),
        stages=stages,
        where=fields.where,
        digest=hashlib.sha256(raw).hexdigest(),
        source=raw,
        permits=_chosen(fields, "permits", ACTIONS),
        notify=_names(fields, "notify"),
        explanation=fields.text("explanation", required=True),
    )


def _stages(fields: Fields) -> Iterator[SopStage]:
    for node in _listed(fields, "stages", "stages"):
        inner = Fields(node, fields.problems, "stage")
        name = inner.scalar("id", identifier, "", required=True)
        yield SopStage(
            id=name,
            title=inner.text("title", required=True),
            due=inner.scalar("due", _due, 0.0, required=True),
            met=tuple(_signs(inner)),
            step=inner.choice("step", STEPS, STEPS[0], required=True),
            where=node.where,
            permits=_chosen(inner, "permits", ACTIONS),
            notify=_names(inner, "notify"),
        )
        inner.finish()


def _signs(fields: Fields) -> Iterator[Sign]:
    for node in _listed(fields, "met", "signs"):
        inner = Fields(node, fields.problems, "sign")
        event = inner.choice("event", tuple(KINDS), "", required=True)
        yield Sign(
            event=event,
            qualifiers=_qualifiers(inner, KINDS.get(event, {})),
            where=node.where,
            when=_condition(inner, event),
            holds=inner.scalar("holds", parse_duration, 0.0),
            after=inner.text("after"),
        )
        if inner.node("holds") and event != events.SAMPLED:
            inner.problem(node.where, f"holds requires {events.SAMPLED}: {event or 'this'} has no duration")
        if event:  # otherwise the allowed keys are unknown
            inner.finish()


def _qualifiers(fields: Fields, known: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Each with the values that count: one, or a list of them."""
    return {name: found for name, allowed in known.items() if (found := _chosen(fields, name, allowed))}


def _condition(fields: Fields, event: str) -> Condition | None:
    node = fields.node("when")
    if event != events.SAMPLED:
        if node is not None:
            fields.problem(node.where, f"when is judged on {events.SAMPLED}, and {event or 'this'} has no values")
        return None
    if node is None:
        fields.problem(fields.where, f"a sign of {events.SAMPLED} lacks 'when'")
        return None
    found = parse_condition(node, fields.problems)
    for comparison in comparisons(found) if found else ():
        if isinstance(comparison.right, Reference) and comparison.right.of in _UNREMEMBERED:
            fields.problem(node.where, f"when: a sample knows no {comparison.right.of}")
    return found


def _check_order(stages: Sequence[SopStage], fields: Fields) -> None:
    """Each id once; none due before the one above it; `after` names one above."""
    earlier: list[SopStage] = []
    for stage in stages:
        above = [one.id for one in earlier]
        if stage.id and stage.id in above:
            fields.problem(stage.where, f"duplicate stage {stage.id!r}")
        if earlier and stage.due < earlier[-1].due:
            fields.problem(stage.where, f"the stage {stage.id} is due before {earlier[-1].id}, which precedes it")
        for sign in stage.met:
            if sign.after and sign.after not in above:
                fields.problem(sign.where, f"after: {sign.after!r} is no stage above this one")
        earlier.append(stage)


def _listed(fields: Fields, key: str, what: str) -> Sequence[Node]:
    """The entries of a list of at least one."""
    node = fields.node(key, required=True)
    if node is None:
        return ()
    if not isinstance(node.value, tuple) or not node.value:
        fields.problem(node.where, f"{key!r} must be a list of {what}")
        return ()
    if len(node.value) > MOST:
        fields.problem(node.where, f"{key!r} has {len(node.value)} entries, more than {MOST}")
        return ()
    return node.value


def _chosen(fields: Fields, key: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """One value or a list of distinct values of `allowed`; empty where absent."""
    node = fields.node(key)
    if node is None:
        return ()
    found = (node.text,) if node.text is not None else fields.texts(key)
    if node.value == ():
        fields.problem(node.where, f"{key!r} is empty")
    for text in found:
        try:
            one_of(text, allowed)
        except ValueError as error:
            fields.problem(node.where, f"{key}: {error}")
    for text in dict.fromkeys(text for text in found if found.count(text) > 1):
        fields.problem(node.where, f"{key}: duplicate {text}")
    return found


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    node, found = fields.node(key), fields.texts(key)
    for text in found:
        if not _NAME.fullmatch(text) or len(text) > 80:
            fields.problem(node.where if node else fields.where, f"{key}: {text!r} is no name")
    return found


def identifier(text: str) -> str:
    """`text`, if it can name an SOP, a stage and a file. Raises ValueError."""
    if not _ID.fullmatch(text) or len(text) > 80:
        raise ValueError(f"{text!r} is not lower-case words joined by - or .")
    return text


def _due(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds <= LONGEST:
        raise ValueError(f"{text!r}: a stage is due above 0 s and at most {LONGEST / 86_400:g} d after the start")
    return seconds


USUAL = "slow-inference"  # the default SOP


@cache
def shipped() -> Mapping[str, Sop]:
    """Shipped SOPs by id."""
    return read_sops([folder("sops")])


def read_sops(folders: Iterable[Path]) -> Mapping[str, Sop]:
    """The SOPs of all `folders` together, by id. Raises DefinitionError with every problem of every file."""
    problems: list[Problem] = []
    found: dict[str, Sop] = {}
    for path in defined(folders, "SOPs", problems):
        sop = read_sop(path, problems)
        if sop is not None:
            add(found, sop.id, sop, sop.where, problems)
    if problems:
        raise DefinitionError(problems, next_step="see docs/sop.md for the format of SOPs")
    return dict(sorted(found.items()))


def keep(place: Path, incident: str, sop: Sop) -> None:
    """Store a copy of the SOP beside the incident's evidence in the state folder `place`, as later versions may differ.

    Atomic. Raises UsageError, and OperationError where it cannot be written.
    """
    path = _stored_path(place, incident, sop.id)
    ensure_private(path.parent)
    draft = path.with_suffix(".new")
    try:
        with draft.open("wb") as file:
            file.write(sop.source)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        fsync_directory(path.parent)
    except OSError as error:
        raise OperationError(
            f"the SOP cannot be stored: {error.strerror}", where=str(path), next_step="free space there"
        ) from error


def sop_of_incident(place: Path, incident: Incident) -> Sop:
    """The SOP that `incident` was opened with, in the version of that time.

    Raises OperationError where it is not available, and UsageError where the incident has no SOP.
    """
    name, digest = incident.opened.sop, incident.opened.sop_digest
    if not name:
        raise UsageError(
            f"{incident.id} was opened without an SOP", next_step=f"latdoctor timeline --incident {incident.id}"
        )
    known = shipped().get(name)
    if known is not None and known.digest == digest:
        return known
    problems: list[Problem] = []
    path = _stored_path(place, incident.id, name)
    try:
        stored = read_sop(path, problems) if path.is_file() else None
    except OSError as error:  # no permission
        raise OperationError(
            f"the SOP that {incident.id} was opened with cannot be read: {error.strerror}",
            where=str(path),
            next_step="check its rights",
        ) from error
    if stored is None or problems or stored.digest != digest:
        why = "differs from the original" if known or stored else "is missing"
        raise OperationError(
            f"the SOP {clean(name, 80)!r} that {incident.id} was opened with {why}",
            where=str(path),
            next_step="put the file that it was opened with there",
        )
    return stored


def _stored_path(place: Path, incident: str, sop: str) -> Path:
    try:
        return folder_of(place, incident) / f"{identifier(sop)}.yaml"
    except ValueError as error:
        raise UsageError(f"the SOP {error}") from error


def find(known: Mapping[str, Sop], name: str) -> Sop:
    """The SOP called `name`. Raises UsageError with near names."""
    if name not in known:
        similar = get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(similar)}?" if similar else f"there are: {', '.join(known) or 'none'}"
        raise UsageError(f"there is no SOP {clean(name, 80)!r}", next_step=hint)
    return known[name]
