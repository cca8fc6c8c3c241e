"""Saved plans (`--save-plan`, `--plan`) and other files of bounded size that commands read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from latdoctor.cli.console import notice_once
from latdoctor.collectors.piped_input import is_stream, read_stream, shown_name
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError, UsageError
from latdoctor.regular_file import read_by_others, read_regular, read_with_status, written_by_others
from latdoctor.remediation.planner import Plan
from latdoctor.sanitize import clean

MAX_BYTES = 64 << 20  # of a diagnosis or a plan
PIPE_TIMEOUT = 30.0  # seconds without data


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as a file, with the digest that detects damage. An edit can make the digest anew: `saved_plan.py`."""

    digest: str
    plan: Plan


def load_plan(path: Path) -> Plan:
    """Raises UsageError for a file that is no plan, or whose digest differs. Others' access to it is warned about."""
    try:
        raw, status = read_with_status(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path))
    if why := written_by_others(status) or ("can be read by other users" if read_by_others(status) else ""):
        notice_once(f"{clean(str(path), 300)} {why}. Next: chmod 600 {path}")
    try:
        saved = msgspec.json.decode(raw, type=SavedPlan)
    except UNDECODABLE as error:
        raise UsageError(f"not a saved plan: {error}", where=str(path), next_step="--save-plan writes one") from error
    if saved.plan.digest != saved.digest:
        raise UsageError("the plan was edited after it was saved", where=str(path), next_step="make the plan again")
    return saved.plan


def save_plan(plans: Sequence[Plan], path: Path) -> None:
    """Raises UsageError unless there is exactly one plan, or where the file exists or cannot be written."""
    if len(plans) != 1:
        raise UsageError(f"{len(plans)} targets have {len(plans)} plans; one is saved at a time", where="--save-plan")
    saved = SavedPlan(plans[0].digest, plans[0])
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(saved)))
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error.strerror}", where=str(path)) from error


def read_bounded(path: Path) -> bytes:
    """The content of a file or pipe of at most 64 MiB. Raises UsageError, and SourceError for a pipe."""
    if is_stream(path):
        return _read_pipe(path)
    try:
        raw = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path))
    return raw


def _read_pipe(path: Path) -> bytes:
    """What a pipe yields to its end. Raises SourceError where it does not end in time."""
    found = read_stream(path, PIPE_TIMEOUT, MAX_BYTES, MAX_BYTES)
    if found.unfinished:
        step = "write it to a file first, then name that file"
        raise SourceError(f"not read to its end: {found.unfinished}", where=shown_name(path), next_step=step)
    return found.content
