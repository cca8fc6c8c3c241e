"""Folders of SOPs, `<id>.yaml` each: all problems of all files at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from latdoctor.errors import DefinitionError, OperationError, Problem, UsageError
from latdoctor.incident import sop_file
from latdoctor.incident.joining import folder_of
from latdoctor.incident.sop import Sop
from latdoctor.incident.state import Incident
from latdoctor.journal.state import must_be, synced
from latdoctor.packaged import folder
from latdoctor.text import clean
from latdoctor.yamlfile import add, defined

USUAL = "slow-inference"  # what is followed where nobody chooses


@cache
def shipped() -> Mapping[str, Sop]:
    """The SOPs that come with latdoctor, by id."""
    return read([folder("sops")])


def read(folders: Iterable[Path]) -> Mapping[str, Sop]:
    """The SOPs of all `folders` together, by id. Raises DefinitionError with every problem of every file."""
    problems: list[Problem] = []
    found: dict[str, Sop] = {}
    for path in defined(folders, "SOPs", problems):
        sop = sop_file.read(path, problems)
        if sop is not None:
            add(found, sop.id, sop, sop.where, problems)
    if problems:
        raise DefinitionError(problems, next_step="see docs/sop.md for the format of SOPs")
    return dict(sorted(found.items()))


def keep(place: Path, incident: str, sop: Sop) -> None:
    """Puts the SOP as it is beside the incident's evidence, in the state folder `place`: a later one may say otherwise.

    Whole or not at all. Raises UsageError, and OperationError where it cannot be written.
    """
    path = _kept(place, incident, sop.id)
    must_be(path.parent)
    draft = path.with_suffix(".new")
    try:
        with draft.open("wb") as file:
            file.write(sop.source)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        synced(path.parent)
    except OSError as error:
        raise OperationError(
            f"the SOP cannot be kept: {error.strerror}", where=str(path), next_step="free space there"
        ) from error


def followed(place: Path, incident: Incident) -> Sop:
    """The SOP that `incident` was opened with, as it was then.

    Raises OperationError where that is nowhere to be found, and UsageError where it was opened without one.
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
    path = _kept(place, incident.id, name)
    try:
        kept = sop_file.read(path, problems) if path.is_file() else None
    except OSError as error:  # a folder that nobody may look into
        raise OperationError(
            f"the SOP that {incident.id} was opened with cannot be read: {error.strerror}",
            where=str(path),
            next_step="check its rights",
        ) from error
    if kept is None or problems or kept.digest != digest:
        why = "differs from what it was" if known or kept else "is not here"
        raise OperationError(
            f"the SOP {clean(name, 80)!r} that {incident.id} was opened with {why}",
            where=str(path),
            next_step="put the file that it was opened with there",
        )
    return kept


def _kept(place: Path, incident: str, sop: str) -> Path:
    try:
        return folder_of(place, incident) / f"{sop_file.identifier(sop)}.yaml"
    except ValueError as error:
        raise UsageError(f"the SOP {error}") from error


def find(known: Mapping[str, Sop], name: str) -> Sop:
    """The SOP called `name`. Raises UsageError with near names."""
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise UsageError(f"there is no SOP {clean(name, 80)!r}", next_step=hint)
    return known[name]
