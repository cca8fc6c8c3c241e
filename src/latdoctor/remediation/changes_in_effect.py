"""Whether changes are in effect: the wait until they are complete, and the values that were lost since.

A rollout replaces its Pods long after it was accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import (
    Change,
    Deadline,
    Refused,
    Undo,
    Unreachable,
    Value,
    has_values,
    read_with_retry,
)
from latdoctor.remediation.run_observer import RunFailed
from latdoctor.remediation.run_result import Reason
from latdoctor.remediation.target import Access

_POLL = 1.0  # seconds


@runtime_checkable
class GradualResource(Protocol):
    """A resource whose changes take effect after they were accepted."""

    def incomplete(self, deadline: Deadline) -> str:
        """What it still waits for; empty once it is complete. Raises Refused where it will not be, Unreachable."""


def await_completion(changes: Iterable[Change], access: Access, deadline: Deadline) -> None:
    """Return once all changes are complete. Raises RunFailed if one will not be, or is not before the deadline."""
    for change in changes:
        resource = require_action(change.action).resource(access, change.resource)
        if not isinstance(resource, GradualResource):
            continue
        waiting = "no answer"
        while True:
            try:
                waiting = resource.incomplete(deadline)
            except Refused as refused:
                raise RunFailed(Reason.NOT_COMPLETE, f"{change.step}: {refused}") from refused
            except Unreachable:  # asked again
                pass
            if not waiting:
                break
            if not deadline.pause(_POLL):
                raise RunFailed(Reason.NOT_COMPLETE, f"{change.step} is not complete: {waiting}")


def lost_values(changes: Iterable[tuple[Change, str]], access: Access, deadline: Deadline) -> str:
    """The values of `changes` (in the order in which they were applied) that are no longer set; empty if all are.

    A change comes with the process that it was made on; another process has not verified it.

    Of a field that was changed twice, the last value counts. Only changes with undo `restore` are checked.
    Raises OperationError if the target cannot be read in time.
    """
    expected: dict[tuple[str, str], dict[str, Value]] = {}
    instances: dict[str, set[str]] = {}
    for change, instance in changes:
        if change.undo == Undo.RESTORE:
            expected.setdefault((change.action, change.resource), {}).update(change.after)
            instances.setdefault(change.resource, set()).add(instance)
    found = []
    for (action, resource), values in expected.items():
        state = read_with_retry(require_action(action).resource(access, resource), deadline)
        if state.instance and instances[resource] - {state.instance, ""}:
            found.append(f"the server behind {resource} was restarted")
        now = state.values
        lost = {name: value for name, value in values.items() if not has_values(now, {name: value})}
        found += [f"{name} of {resource} is {now.get(name)!r}, was set to {value!r}" for name, value in lost.items()]
    return "; ".join(found)
