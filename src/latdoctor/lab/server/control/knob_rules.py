"""Which step the controller takes next: additive increase, multiplicative decrease, and a dead band between them.

Admission follows AIMD on the P99 of what was answered: the deadline shrinks by a factor while answers are late, and
grows by a constant while requests are refused that could have been answered in time, up to the objective less the
longest batch. The bound of a batch shrinks where one takes too much of the objective and calls have little fixed cost,
and grows where it closes the batches of a busy worker and they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from latdoctor.lab.server.config import ControlConfig, ServerConfig
from latdoctor.lab.server.control.load_window import Measurement
from latdoctor.lab.server.control.step import ControlledKnob, Metric, Prediction, StepReason
from latdoctor.shares import Share

P99_SHARE = 0.01  # of the answers may be late
_Z = 1.64  # one-sided 95 %
_REFUSED = 0.005  # share of refused requests that counts as shedding
_GROWTH = 0.05  # of the objective: additive step of the deadline
_LEAST_CUT = 0.05  # a decrease that is smaller shows no effect
_BATCH_SHARE = 0.15  # of the objective that one batch may take
_CHEAP = 0.1  # share of the fixed cost in a call up to which calls may be made shorter
_SLACK = 1.05  # no step for less
_BUSY, _CALM = 0.9, 0.5
_BOUND = 0.2  # share of the batches that the bound closed
_FIXED = 0.5  # share of a call's cost from which waiting for more requests pays
_LEAST_WAIT = 1.0  # ms

Values = Mapping[ControlledKnob, float]


class ProposedStep(Struct, frozen=True):
    """A change that the measurement suggests, with what it is expected to do."""

    knob: ControlledKnob
    new: float
    reason: StepReason
    prediction: Prediction


def values_of(config: ServerConfig) -> dict[ControlledKnob, float]:
    """The controlled knobs in a configuration."""
    found = {}
    for knob in ControlledKnob:
        group, _, name = knob.partition(".")
        found[knob] = float(getattr(getattr(config, group), name))
    return found


def proposals(found: Measurement, values: Values, control: ControlConfig) -> Iterator[ProposedStep]:
    """The steps that `found` suggests, the most urgent first; those that change nothing are left out."""
    for step in (*_admission(found, values, control), *_batch(found, values, control), *_wait(found, values, control)):
        if step.new != values[step.knob]:
            yield step


def arming(found: Measurement, values: Values, control: ControlConfig) -> Iterator[ProposedStep]:
    """What is set before anything was late: admission by deadline, where there is none or one that is too long for the
    longest batch, and a batch that takes a small part of the objective.
    """
    slo, deadline = control.slo_ms / 1000, values[ControlledKnob.DEADLINE] / 1000
    tokens = values[ControlledKnob.BATCH_TOKENS]
    shorter = _shorter(found, tokens, control)
    low, high = _deadlines(found, control, found.full_batch * shorter / tokens)
    if not low <= deadline <= high * _SLACK:
        new = min(high, slo * (1 - control.dead_band)) if deadline < low else high
        expected = Prediction(Metric.P99, found.p99, min(found.p99, slo))
        yield ProposedStep(ControlledKnob.DEADLINE, _ms(max(low, new)), StepReason.ARM, expected)
    if shorter < tokens:
        expected = Prediction(Metric.P99, found.p99, found.p99)
        yield ProposedStep(ControlledKnob.BATCH_TOKENS, shorter, StepReason.BATCH_TOO_LONG, expected)


def _deadlines(found: Measurement, control: ControlConfig, full_batch: float) -> tuple[float, float]:
    """The lowest and the highest deadline, in seconds. A request that starts at its deadline takes one batch more."""
    slo = control.slo_ms / 1000
    low, high = control.min_deadline * slo, control.max_deadline * slo
    return low, max(low, min(high, slo - max(found.longest_batch, full_batch)))


def _shorter(found: Measurement, tokens: float, control: ControlConfig) -> float:
    """The bound at which a full batch takes its share of the objective, but no less than the longest request; the same
    where it does, or where calls may not be shorter: their fixed cost is paid more often.
    """
    most = _BATCH_SHARE * control.slo_ms / 1000
    if found.full_batch <= most * _SLACK or found.full_batch_fixed > _CHEAP:
        return tokens
    factor = max(1 - control.max_step, most / found.full_batch, found.full_batch_fixed / _CHEAP)
    return float(min(tokens, max(control.min_batch_tokens, found.longest_request, round(tokens * factor))))


def _admission(found: Measurement, values: Values, control: ControlConfig) -> Iterator[ProposedStep]:
    slo, deadline = control.slo_ms / 1000, values[ControlledKnob.DEADLINE] / 1000
    low, high = _deadlines(found, control, found.full_batch)
    refused = found.shed / found.finished
    if refused <= _REFUSED or not deadline:
        return  # the deadline is not what decides
    if is_late(found):
        factor = max(1 - control.max_step, min(1 - _LEAST_CUT, slo * (1 - control.dead_band) / max(found.p99, slo)))
        new = max(low, deadline * factor)
        expected = Prediction(Metric.P99, found.p99, found.p99 * new / deadline)
        yield ProposedStep(ControlledKnob.DEADLINE, _ms(new), StepReason.LATE, expected)
    elif found.p99 < slo * (1 - control.dead_band / 2) and deadline < high:
        new = min(high, deadline + min(_GROWTH * slo, control.max_step * deadline))
        share = found.missed / found.finished
        expected = Prediction(Metric.MISSED, share, share * deadline / new)
        yield ProposedStep(ControlledKnob.DEADLINE, _ms(new), StepReason.SHEDS_EARLY, expected)


def _batch(found: Measurement, values: Values, control: ControlConfig) -> Iterator[ProposedStep]:
    """A larger batch, where the bound closes the batches of a busy worker and a request costs less in a larger one."""
    growth = 1 + control.max_step / 2
    fixed = found.full_batch_fixed
    # Where a call costs much by itself, a longer batch is worth more than a longer queue.
    most = (_BATCH_SHARE if fixed < _FIXED else 2 * _BATCH_SHARE) * control.slo_ms / 1000
    busy = found.busy > _BUSY and (is_late(found) or found.shed > _REFUSED * found.finished)
    if not busy or fixed < _CHEAP or max(found.longest_batch, found.full_batch) * growth > most:
        return
    missed = found.missed / found.finished
    expected = Prediction(Metric.MISSED, missed, missed * (1 - fixed * (1 - 1 / growth)))
    if found.bound_by_tokens > _BOUND:
        tokens = values[ControlledKnob.BATCH_TOKENS]
        larger = min(control.max_batch_tokens, round(tokens * growth))
        if larger > tokens:
            yield ProposedStep(ControlledKnob.BATCH_TOKENS, float(larger), StepReason.BATCH_BOUND, expected)
    if found.bound_by_requests > _BOUND:
        requests = values[ControlledKnob.BATCH_REQUESTS]
        larger = min(control.max_batch_requests, max(round(requests * growth), int(requests) + 1))
        if larger > requests:
            yield ProposedStep(ControlledKnob.BATCH_REQUESTS, float(larger), StepReason.BATCH_BOUND, expected)


def _wait(found: Measurement, values: Values, control: ControlConfig) -> Iterator[ProposedStep]:
    """A wait only delays where a worker has time; it saves calls where a call costs the same for any number."""
    wait = values[ControlledKnob.WAIT]
    if wait and found.busy < _CALM and found.timed_out > _BOUND:
        new = _rounded(wait * (1 - control.max_step))
        new = new if new >= _LEAST_WAIT else 0.0
        expected = Prediction(Metric.P50, found.p50, max(0.0, found.p50 - (wait - new) / 1000))
        yield ProposedStep(ControlledKnob.WAIT, new, StepReason.WAIT_COSTS, expected)
    elif (
        found.fixed_share is not None
        and found.fixed_share > _FIXED
        and _CALM < found.busy < 1.0
        and found.p99 < control.slo_ms / 1000 * (1 - control.dead_band)
    ):
        new = min(control.max_wait_ms, wait + _LEAST_WAIT)
        expected = Prediction(Metric.BUSY, found.busy, found.busy * 0.98)
        if new > wait:
            yield ProposedStep(ControlledKnob.WAIT, new, StepReason.WAIT_SAVES, expected)


def is_late(found: Measurement) -> bool:
    """Whether more answers are late than the P99 allows, and not by chance."""
    return bool(found.late) and Share(found.late, found.answers).interval(_Z)[0] > P99_SHARE


def metric_of(metric: Metric, found: Measurement) -> float | None:
    """The measured value; None where nothing was measured."""
    match metric:
        case Metric.P99:
            return found.p99 if found.answers else None
        case Metric.P50:
            return found.p50 if found.answers else None
        case Metric.BUSY:
            return found.busy
        case Metric.MISSED:
            return found.missed / found.finished if found.finished else None
        case Metric.P95:
            return None  # the router's


def _ms(seconds: float) -> float:
    return _rounded(seconds * 1000)


def _rounded(value: float) -> float:
    return round(value, 1)
