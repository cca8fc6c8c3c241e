"""Plans that are kept to be executed later, and files that are read on the way to one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remedy.plan import Plan

MAX_BYTES = 64 << 20  # of a diagnosis or a plan


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as it is kept, with what tells whether it is still the same."""

    digest: str
    plan: Plan


def saved_plan(path: Path) -> Plan:
    """Raises UsageError for what is no plan, and for one that is not as it was written."""
    try:
        saved = msgspec.json.decode(bounded(path), type=SavedPlan)
    except UNDECODABLE as error:
        raise UsageError(f"it is no plan: {error}", where=str(path), next_step="--save-plan writes one") from error
    if saved.plan.digest != saved.digest:
        raise UsageError("it was changed since it was made", where=str(path), next_step="make the plan again")
    return saved.plan


def save_plan(plans: Sequence[Plan], path: Path) -> None:
    """Raises UsageError where there is not one plan, or it cannot be written."""
    if len(plans) != 1:
        raise UsageError(f"{len(plans)} targets have {len(plans)} plans; one is saved at a time", where="--save-plan")
    saved = SavedPlan(plans[0].digest, plans[0])
    try:
        with path.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(saved)))
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error.strerror}", where=str(path)) from error


def bounded(path: Path) -> bytes:
    """The file, if it is not too large. Raises UsageError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"it is larger than {MAX_BYTES >> 20} MiB", where=str(path))
    return raw
