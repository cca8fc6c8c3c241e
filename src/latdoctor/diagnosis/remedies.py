"""Which playbooks a diagnosis leads to."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.diagnosis.result import RankedCause

_CHANGEABLE = ("replica/", "server/")  # subjects whose server a playbook may be for


def first_playbook(cause: RankedCause) -> str:
    """What may be run: for a cause that is named, and was seen at a server that can be changed."""
    changed = any(subject.startswith(_CHANGEABLE) for subject in cause.subjects)
    return cause.playbooks[0] if cause.named and cause.playbooks and changed else ""


def playbooks_for(causes: Sequence[RankedCause]) -> tuple[str, ...]:
    """What may be run against all of them together, else against each."""
    runnable = [cause for cause in causes if first_playbook(cause)]
    if len(runnable) > 1:
        together = [name for name in runnable[0].playbooks if all(name in one.playbooks for one in runnable)]
        if together:
            return tuple(together)
    return tuple(dict.fromkeys(first_playbook(cause) for cause in runnable))
