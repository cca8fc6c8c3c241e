"""Whether what a run has changed still stands: nobody sees at a latency that a server was started anew meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import Change, Deadline, Value, has_values, read_with_retry
from latdoctor.remediation.target import Access

READING = 20.0  # seconds for a look at how all of it stands: one exchange may be lost


def lost(changes: Iterable[Change], access: Access, deadline: Deadline) -> str:
    """What of `changes`, given in the order in which they were made, is not there any more; empty where all of it is.

    Of a field that was changed twice the last value counts. What leaves nothing to put back is not looked at.
    Raises OperationError where the target does not tell in time.
    """
    left: dict[tuple[str, str], dict[str, Value]] = {}
    for change in changes:
        if change.undo == "restore":
            left.setdefault((change.action, change.resource), {}).update(change.after)
    found = []
    for (action, where), values in left.items():
        now = read_with_retry(require_action(action).resource(access, where), deadline).values
        gone = {name: value for name, value in values.items() if not has_values(now, {name: value})}
        found += [f"{name} of {where} is {now.get(name)!r}, and was set to {value!r}" for name, value in gone.items()]
    return "; ".join(found)
