"""Saved plans (`--save-plan`, `--plan`) and other files of bounded size that commands read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remediation.planner import Plan

MAX_BYTES = 64 << 20  # of a diagnosis or a plan


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as a file, with the digest that detects a later edit."""

    digest: str
    plan: Plan


def load_plan(path: Path) -> Plan:
    """Raises UsageError for a file that is no plan, and for one that was edited."""
    try:
        saved = msgspec.json.decode(read_bounded(path), type=SavedPlan)
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
        with path.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(saved)))
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error.strerror}", where=str(path)) from error


def read_bounded(path: Path) -> bytes:
    """The content of a file of at most 64 MiB. Raises UsageError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path))
    return raw
