"""What a playbook names elsewhere: actions, causes, findings. What its file tells by itself was asked when it was read.

Causes and findings are given by the caller: mending knows nothing of how a cause is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from latdoctor.conditions.ast import signals_of
from latdoctor.errors import Problem
from latdoctor.remediation.actions import ACTIONS, find_action
from latdoctor.remediation.playbook import Playbook, Step
from latdoctor.remediation.playbook_loader import Library

# What gets better whenever less is to be done, for whatever reason.
PAIN = ("latency", "router.latency", "client.", "queue.", "error.", "arrival.", "router.arrival", "completion.")


def lint(library: Library, causes: Mapping[str, Collection[str]], findings: Collection[str]) -> list[Problem]:
    """All that is wrong. `causes`: by id, the findings that each expects; `findings`: the ids of all there are."""
    found: list[Problem] = []
    for playbook in library.playbooks:
        found.extend(Problem(playbook.where, what) for what in _names(playbook, causes, findings))
        for step in playbook.steps:
            found.extend(Problem(step.where, what) for what in _step(step, playbook))
    return found


def _names(playbook: Playbook, causes: Mapping[str, Collection[str]], findings: Collection[str]) -> Iterator[str]:
    for name in playbook.addresses:
        if name not in causes:
            yield f"addresses: there is no cause {name!r}{_near(name, causes)}"
    for name in playbook.verify.mechanism:
        if name not in findings:
            yield f"mechanism: there is no finding {name!r}{_near(name, findings)}"
    if playbook.treats == "cause" and all(name in causes for name in playbook.addresses):
        expected = {finding for name in playbook.addresses for finding in causes[name]}
        if not expected & set(playbook.verify.mechanism) and not _own_signals(playbook):
            yield (
                "it treats a cause, and only pain is looked at afterwards: name a finding that the cause expects "
                "(mechanism), or a signal of what is changed (succeed)"
            )


def _own_signals(playbook: Playbook) -> set[str]:
    """The signals of its success that speak of more than pain."""
    judged = {signal for condition in playbook.verify.succeed for signal in signals_of(condition)}
    return {signal for signal in judged if not signal.startswith(PAIN)}


def _step(step: Step, playbook: Playbook) -> Iterator[str]:
    known = find_action(step.action)
    if known is None:
        if ACTIONS:
            names = [one.name for one in ACTIONS]
            yield f"there is no action {step.action!r}{_near(step.action, names)}"
        return
    if step.undo not in known.undos:
        yield f"{known.name} cannot promise undo: {step.undo} (it promises {', '.join(sorted(known.undos))})"
    elsewhere = sorted(set(playbook.targets) - known.kinds)
    if elsewhere:
        yield f"{known.name} does not act on {', '.join(elsewhere)}"
    yield from known.check_arguments(step.given)


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
