"""From metrics to causes: what is learnt, that nothing is learnt from the run that is judged, that it can be read."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latdoctor.diagnosis import rule_loader
from latdoctor.evaluation.baselines.learned_cause_mapping import (
    CauseMapping,
    MappingKind,
    TrainingRun,
    fit,
    from_rules,
    named,
    refitted,
)
from latdoctor.evaluation.baselines.methods import MetricScores
from latdoctor.evaluation.report import mapping_tables
from latdoctor.evaluation.scoring import MethodInput
from latdoctor.evidence.catalogue import catalogue

CAUSES = ("app.a", "app.b", "infra.c")
SIGNALS = ("sig.a", "sig.b", "sig.c", "sig.noise")
PRIOR = {"sig.a": {"app.a": 1.0}, "sig.b": {"app.b": 0.5, "app.a": 0.5}, "sig.d": {"infra.d": 1.0}}


def made(*order: str) -> MetricScores:
    """A ranking of signals."""
    return MetricScores("p", tuple((signal, float(len(order) - place)) for place, signal in enumerate(order)))


def runs(count: int = 6) -> list[TrainingRun]:
    """Each cause shows in its own signal; noise comes first in half of the runs."""
    found = []
    for cause, signal in zip(CAUSES, SIGNALS, strict=False):
        for number in range(count):
            order = ["sig.noise", signal] if number % 2 else [signal, "sig.noise"]
            found.append(TrainingRun(made(*order), (cause,)))
    return found


def test_what_training_shows_is_learnt() -> None:
    fitted = fit("p", runs(), {})
    assert fitted.left_out == 1.0
    assert fitted.runs == 18
    for cause, signal in zip(CAUSES, SIGNALS, strict=False):
        assert named(fitted, made("sig.noise", signal))[0] == cause


def test_a_cause_that_was_not_trained_on_is_known_by_the_rules() -> None:
    fitted = fit("p", runs(), PRIOR)
    assert named(fitted, made("sig.d"))[0] == "infra.d"


def test_without_the_runs_of_a_cause_only_the_rules_know_it() -> None:
    fitted = fit("p", runs(), {})
    assert (fitted.left_out, fitted.cause_left_out) == (1.0, 0.0)
    rules = {signal: {cause: 1.0} for cause, signal in zip(CAUSES, SIGNALS, strict=False)}
    assert fit("p", runs(), rules).cause_left_out == 1.0


def test_a_run_that_was_trained_on_is_read_by_what_the_others_taught() -> None:
    odd = TrainingRun(made("sig.odd", "sig.noise"), ("app.a",))
    training = [*runs(), odd]
    fitted = fit("p", training, {})
    assert named(fitted, odd.scored)[0] == "app.a"
    without = refitted(fitted, training[:-1], {})
    assert "sig.odd" not in without.table
    assert (without.kind, without.depth, without.strength) == (fitted.kind, fitted.depth, fitted.strength)


def test_the_run_that_is_judged_teaches_nothing() -> None:
    """Of every cause a single run: left out, there is nothing to know it by."""
    assert fit("p", [run for run in runs() if run.scored.signals[0][0] != "sig.noise"][::3], {}).left_out == 0.0


def test_number_of_runs_of_a_cause_does_not_change_its_weight() -> None:
    many = [*runs(2), *(TrainingRun(made("sig.a", "sig.noise"), ("app.a",)) for _ in range(50))]
    assert named(fit("p", many, {}), made("sig.noise", "sig.b"))[0] == "app.b"


def test_ties_are_not_counted_as_correct() -> None:
    """All runs look alike: whichever cause is told, it is right for one of the two only."""
    alike = [TrainingRun(made("sig.a", "sig.b"), (cause,)) for cause in ("app.a", "app.b") for _ in range(4)]
    assert fit("p", alike, {}).left_out <= 0.5


def test_runs_without_a_cause_and_failed_ones() -> None:
    failed = MetricScores("p", failed="crashed")
    fitted = fit("p", [*runs(), TrainingRun(made("sig.noise"), ()), TrainingRun(failed, ("app.a",))], {})
    assert fitted.runs == 19, "a healthy run has no cause to name, a crashed one has"
    assert fitted.left_out == pytest.approx(18 / 19)
    assert named(fitted, failed) == ()
    assert named(fitted, made("sig.never.seen")) == ()


def test_two_causes_at_once_count_for_both() -> None:
    fitted = fit("p", [TrainingRun(made("sig.a", "sig.b"), ("app.a", "app.b"))] * 4, {})
    assert set(named(fitted, made("sig.a", "sig.b"))) == {"app.a", "app.b"}


def test_nothing_to_train_on_leaves_what_the_rules_say() -> None:
    fitted = fit("p", [], PRIOR)
    assert (fitted.runs, fitted.left_out) == (0, 0.0)
    assert named(fitted, made("sig.d", "sig.a"))[0] == "infra.d"


def test_the_rules_speak_of_every_cause_that_they_can_tell() -> None:
    prior = from_rules(rule_loader.shipped())
    assert set(prior) <= catalogue().keys()
    assert {cause for own in prior.values() for cause in own} == set(rule_loader.shipped().cause)
    assert all(sum(own.values()) == pytest.approx(1) for own in prior.values())
    assert "latency.p99" not in prior or prior["latency.p99"], "symptoms name nobody, specific findings may use it"


ORDER = st.permutations(SIGNALS).map(lambda order: made(*order))
TRAINING = st.lists(st.tuples(ORDER, st.lists(st.sampled_from(CAUSES), max_size=2, unique=True)), max_size=8)


ALIKE = ["sig.noise", "sig.b", "sig.c", "sig.a"]


@example(
    given_runs=[
        (made("sig.a", "sig.c", "sig.noise", "sig.b"), ["app.a", "app.b"]),
        (made(*ALIKE), ["app.a", "app.b"]),
        (made(*ALIKE), ["app.a", "infra.c"]),
    ],
    asked=made(*ALIKE),
)
@given(TRAINING, ORDER)
def test_any_training_gives_a_reading(given_runs: list[tuple[MetricScores, list[str]]], asked: MetricScores) -> None:
    training = [TrainingRun(one, tuple(causes)) for one, causes in given_runs]
    fitted = fit("p", training, PRIOR)
    assert 0 <= fitted.left_out <= 1
    assert 0 <= fitted.cause_left_out <= 1
    assert fitted.kind in MappingKind
    assert all(np.isfinite(weight) and weight > 0 for own in fitted.table.values() for weight in own.values())
    if fitted.kind is MappingKind.VOTES:
        assert all(sum(own.values()) == pytest.approx(1) for own in fitted.table.values() if own)
    answer = named(fitted, asked)
    assert len(set(answer)) == len(answer)
    assert fit("p", training[::-1], PRIOR).left_out == fitted.left_out


def test_a_reading_is_kept_as_json() -> None:
    fitted = fit("p", runs(), PRIOR)
    assert msgspec.json.decode(msgspec.json.encode(fitted), type=CauseMapping) == fitted


def test_tables_have_the_main_causes_of_each_signal() -> None:
    methods, signals = mapping_tables({MethodInput.SCRAPED: [fit("p", runs(), PRIOR)]}, {"p": "The peer"})
    assert methods.rows[0][0] == "The peer"
    assert any(row[0] == "sig.a" and row[1].startswith("app.a ") for row in signals.rows)
    assert ("sig.d", "infra.d 1.00") in signals.rows
