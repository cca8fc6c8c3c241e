"""Conditions on single windows: those before a change, which decide whether one may begin, and those of a stage.

A window counts as a success only if all conditions hold. A window with an unknown condition, or under another load, is
inconclusive and no success. It is compared with every window before the change. Whether a change has helped is the
matter of `proof.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from latdoctor.conditions.ast import AllOf, AnyOf, Comparison, Condition, Constant, Prefer, Reference, SignalTerm
from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN
from latdoctor.remediation.levels import pooled
from latdoctor.remediation.observation import (
    ConditionResult,
    Observation,
    SignalValues,
    evaluate_all,
    evaluate_any,
    evaluate_cleared,
    evaluate_mechanism,
    left_signals,
)
from latdoctor.remediation.playbook import Verify
from latdoctor.remediation.proof import improved_signals
from latdoctor.remediation.repair import may_be_shown
from latdoctor.remediation.run_result import WindowResult, WindowStatus

_DRAINS_BY = 1.2  # so many more answers than arrivals: it drains its queue, and P99 falls whatever is changed
_SLOWLY, _CHANCE = 0.05, 2.0  # so many more answers than arrivals drain too; standard deviations of chance
Before = Sequence[Observation]  # the windows before the change, oldest first; at least one
Evaluate = Callable[[Condition, Observation, SignalValues], ConditionResult]
_STRICTEST = (FAILS, UNKNOWN, HOLDS)
_FALLING = 0.75
_NOT_WORSE = 1.2  # the factor by which P99 of 5 s windows differs under one load; a stage may raise it by that much
_QUEUE, _DRAINS = 10.0, 1.05  # waiting requests that make a queue; completion rate factor that drains it
_AT_ROUTER = {"latency.p99": "router.latency.p99", "completion.rate": "router.completion_rate"}
_SAME_COMPLETIONS = 0.8  # the factor by which the completion rate of 5 s windows differs under one load


def evaluate_window(verify: Verify, observation: Observation, before: Before) -> WindowResult:
    """Compare an observation after the change with the windows before it."""
    if aborted := find_abort(verify, observation, before):
        return aborted
    load = _load_results(verify, observation, before)
    success = [*_success_results(verify, observation, before)]
    if any(one.status != HOLDS for one in load) or any(one.status == UNKNOWN for one in success):
        status = WindowStatus.INCONCLUSIVE
    else:
        status = WindowStatus.SUCCESS if all(one.status == HOLDS for one in success) else WindowStatus.FAILURE
    return WindowResult(observation.started, observation.ended, status, (*load, *success))


def find_abort(verify: Verify, observation: Observation, before: Before) -> WindowResult | None:
    """The conditions that end the run at once, if any holds."""
    aborts = [evaluate_against(condition, observation, before, evaluate_any) for condition in verify.abort]
    aborting = tuple(one for one in aborts if one.status == HOLDS)
    if not aborting:
        return None
    return WindowResult(observation.started, observation.ended, WindowStatus.ABORT, aborting)


def unverifiable(verify: Verify, before: Before) -> tuple[str, ...]:
    """The conditions that are unknown before the change and would be unknown after it, with reasons of the evidence."""
    last = before[-1]
    improved = () if may_be_shown(verify.repair, before) else _succeed_results(verify, last, before)
    results = (*_load_results(verify, last, before), *improved, *_mechanism_results(verify, last, before))
    unknown = [one.summary for one in results if one.status == UNKNOWN]
    signals = {*left_signals(verify.conditions)}
    length = f"observed for {last.ended - last.started:.0f} s"
    why = [f"{gap.message} ({length})" for gap in last.evidence.gaps if unknown and signals.intersection(gap.signals)]
    return tuple(dict.fromkeys((*unknown, *why)))


def already_met(verify: Verify, before: Before) -> str:
    """The conditions of success if all of them hold before the change, which could then not be verified. Else empty."""
    results = list(_success_results(verify, before[-1], before))
    return "; ".join(one.summary for one in results) if all(one.status == HOLDS for one in results) else ""


def recovering(before: Before) -> str:
    """The rates if the service drains its queue already: a change could not be verified. Else empty.

    Empty too if the rates are unknown; load and findings still decide.
    """
    result = evaluate_any(_answers_exceed(_DRAINS_BY), before[-1], {})
    return result.shown if result.status == HOLDS else ""


def draining(before: Before) -> str:
    """As `recovering`, over all windows: the more requests they have, the fewer more answers are no chance."""
    whole = pooled(before)
    arrived = min((value for (signal, _), value in whole.values.items() if signal == "arrival.rate"), default=0.0)
    requests = arrived * sum(one.ended - one.started for one in before)
    factor = 1 + max(_SLOWLY, _CHANCE * math.sqrt(2 / max(1.0, requests)))
    result = evaluate_any(_answers_exceed(factor), whole, {})
    return result.shown if result.status == HOLDS else ""


def _answers_exceed(factor: float) -> Condition:
    """Both rates count the same requests, so that chance affects them alike.

    At the router where that is known: there a replica gets as much as it answers, less what clients gave up.
    """
    pairs = (("router.completion_rate", "router.arrival_rate"), ("completion.rate", "arrival.rate"))
    first, otherwise = (
        Comparison(SignalTerm(answers), ">", Reference(arrivals, factor), f"{answers} > {factor:.3g} x {arrivals}")
        for answers, arrivals in pairs
    )
    return Prefer(first, otherwise)


def falling(verify: Verify, before: Before) -> str:
    """What is better in the last window than in the first, by more than windows usually differ. Else empty."""
    conditions = (_versus_before(signal, "<", _FALLING) for signal in improved_signals(verify))
    results = (evaluate_any(condition, before[-1], before[0].values) for condition in conditions)
    return "; ".join(one.shown for one in results if one.status == HOLDS)


def cause_absent(verify: Verify, observations: Sequence[Observation]) -> bool:
    """Whether each finding that the change should clear was evaluated and is clear already."""
    found = [evaluate_cleared(finding, one) for finding in verify.cleared_findings for one in observations]
    return bool(found) and all(one.status == HOLDS for one in found)


def has_queue(observation: Observation) -> bool:
    """Whether requests queue. A window just after a change then consists of the requests that it released first."""
    return evaluate_any(_above("queue.depth", _QUEUE), observation, {}).status == HOLDS


def stage_verification(verify: Verify, before: Before) -> Verify:
    """The verification of one of several stages: one window in which it has not made things worse.

    The whole must then succeed for as long as the playbook requires; waiting longer for a stage would extend the
    incident.

    While requests queue, P99 is the waiting time: it reacts late, and rises with the age of the queue whatever is
    changed. A stage is then judged by the completion rate, the service's capacity: it must rise, or stay while the
    queue does not grow. Where nothing was answered before, nothing can be worse.
    """
    if _unanswered(before):
        return replace(verify, succeed=(_overall("completion.rate", ">=", 1.0),), mechanism=(), repair=None)
    stays = AllOf(
        (
            _overall("completion.rate", ">", _SAME_COMPLETIONS),
            _versus_before("queue.depth", "<", _NOT_WORSE),
        )
    )
    rises = _overall("completion.rate", ">", _DRAINS)
    queueing = AllOf((_above("queue.depth", _QUEUE), AnyOf((rises, stays))))
    condition = AnyOf((_overall("latency.p99", "<", _NOT_WORSE), queueing))
    return replace(verify, succeed=(condition,), mechanism=(), repair=None)


def _unanswered(before: Before) -> bool:
    signals = ("completion.rate", _AT_ROUTER["completion.rate"])
    rates = [value for one in before for (signal, _), value in one.values.items() if signal in signals]
    return bool(rates) and not any(rates)


def _overall(signal: str, operator: str, factor: float) -> Condition:
    """At the router where that is known: replicas come and go with a stage, and new ones were not measured before."""
    return Prefer(_versus_before(_AT_ROUTER[signal], operator, factor), _versus_before(signal, operator, factor))


def _versus_before(signal: str, operator: str, factor: float) -> Comparison:
    text = f"{signal} {operator} {factor:g} x before"
    return Comparison(SignalTerm(signal), operator, Reference("before", factor), text)


def _above(signal: str, limit: float) -> Comparison:
    return Comparison(SignalTerm(signal), ">", Constant((limit,), f"{limit:g}"), f"{signal} > {limit:g}")


def evaluate_against(
    condition: Condition, observation: Observation, before: Before, evaluate: Evaluate = evaluate_all
) -> ConditionResult:
    """Holds only if it holds in comparison with every window before the change."""
    return _first(_STRICTEST, (evaluate(condition, observation, one.values) for one in before))


def _load_results(verify: Verify, observation: Observation, before: Before) -> list[ConditionResult]:
    """The load is unchanged if it is like that of one window before: load fluctuates too."""
    if verify.load is None:
        return []
    found = (evaluate_all(verify.load, observation, one.values) for one in before)
    return [_first((HOLDS, UNKNOWN, FAILS), found)]


def _success_results(verify: Verify, observation: Observation, before: Before) -> Iterator[ConditionResult]:
    yield from _succeed_results(verify, observation, before)
    yield from _mechanism_results(verify, observation, before)


def _succeed_results(verify: Verify, observation: Observation, before: Before) -> Iterator[ConditionResult]:
    yield from (evaluate_against(condition, observation, before) for condition in verify.succeed)


def _mechanism_results(verify: Verify, observation: Observation, before: Before) -> Iterator[ConditionResult]:
    for item in verify.mechanism:
        yield _first(_STRICTEST, (evaluate_mechanism(item, observation, one.values) for one in before))


def _first(precedence: Sequence[str], results: Iterable[ConditionResult]) -> ConditionResult:
    """The result whose status comes first in `precedence`."""
    return min(results, key=lambda one: precedence.index(one.status))
