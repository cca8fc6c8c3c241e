"""Folders of SOPs, `<id>.yaml` each: all problems of all files at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.incident import sop_file
from latdoctor.incident.sop import Sop
from latdoctor.packaged import folder
from latdoctor.text import clean

USUAL = "slow-inference"  # what is followed where nobody chooses


@cache
def shipped() -> Mapping[str, Sop]:
    """The SOPs that come with latdoctor, by id."""
    return read([folder("sops")])


def read(folders: Iterable[Path]) -> Mapping[str, Sop]:
    """The SOPs of all `folders` together, by id. Raises DefinitionError with every problem of every file."""
    problems: list[Problem] = []
    found: dict[str, Sop] = {}
    for base in folders:
        if not base.is_dir():
            problems.append(Problem(str(base), "is not a folder of SOPs"))
        elif not os.access(base, os.R_OK | os.X_OK):
            problems.append(Problem(str(base), "cannot be read: Permission denied"))
            continue
        for path in sorted(base.glob("*.yaml")):
            sop = sop_file.read(path, problems)
            if sop is None:
                continue
            if sop.id in found:
                problems.append(Problem(sop.where, f"the id {sop.id!r} is used twice"))
            found[sop.id] = sop
    if problems:
        raise DefinitionError(problems, next_step="see docs/sop.md for the format of SOPs")
    return dict(sorted(found.items()))


def find(known: Mapping[str, Sop], name: str) -> Sop:
    """The SOP called `name`. Raises UsageError with near names."""
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise UsageError(f"there is no SOP {clean(name, 80)!r}", next_step=hint)
    return known[name]
