"""Scores of real runs: what counts as right, as wrong, and as no run at all."""

from __future__ import annotations

import msgspec
import pytest

from latdoctor.diagnosis.codes import Level
from latdoctor.evaluation.ground_truth import MachineLoad
from latdoctor.evaluation.real.real_report import real_summary
from latdoctor.evaluation.real.real_scores import RealAnswer, RealRunScore, score_real
from latdoctor.evaluation.real.real_store import CONTENTION, ClientFigures, RealTruth, not_an_effect
from latdoctor.evidence.model import to_json
from latdoctor.load.summary import GeneratorHealth

STALLED, OVERLOAD, BURST = "app.engine.stalled", "app.load.overload", "app.load.burst"
CALM = ClientFigures(100, 100, 0, 0, 0, 0.05, 0.1)
SLOW = ClientFigures(100, 100, 0, 0, 0, 0.4, 2.0)
LESS_SLOW = ClientFigures(100, 100, 0, 0, 0, 0.3, 1.0)
DOWN = ClientFigures(100, 0, 0, 100, 0, None, None)


def truth(run: str, *causes: str, others: float = 0.0, spoiled: tuple[str, ...] = ()) -> RealTruth:
    during = SLOW if causes else CALM
    return RealTruth(
        run=run,
        scenario=run,
        server=run.partition("-")[0],
        version="1",
        date="2026-11-25",
        tool_version="0",
        causes=causes,
        accepts=(),
        since=1000.0,
        lasted=1020.0,
        slo=0.5,
        before=CALM,
        during=during,
        after=CALM,
        generator=GeneratorHealth(0.001, 0.002, 0.003, 0.1, 5),
        machine=MachineLoad(2, 0.1, others),
        spoiled=spoiled,
    )


def said(verdict: Level, *ranked: str, named: int = 1, onset: float | None = None) -> RealAnswer:
    return RealAnswer(verdict, ranked[:named], ranked, 0.9 if ranked else None, onset, (), ())


HEALTHY = said(Level.HEALTHY)
RUNS = (
    RealRunScore(truth("one-hang", STALLED), said(Level.CRITICAL, STALLED, onset=1004.0), HEALTHY, HEALTHY),
    RealRunScore(
        truth("one-load", OVERLOAD),
        said(Level.WARNING, BURST, OVERLOAD, onset=1011.0),
        said(Level.WARNING, OVERLOAD),
        said(Level.CRITICAL),
    ),
    RealRunScore(truth("two-calm"), said(Level.WARNING, BURST), HEALTHY, said(Level.INCONCLUSIVE)),
    RealRunScore(truth("two-late", BURST, spoiled=("late",)), said(Level.CRITICAL, OVERLOAD), HEALTHY, HEALTHY),
)


def test_scores_of_all_and_of_each_server() -> None:
    scores = msgspec.json.decode(to_json(score_real(RUNS, {"three": "not installed"})))
    counts = {
        name: (value["right"], value["of"])
        for name, value in scores.items()
        if isinstance(value, dict) and "of" in value
    }
    assert counts == {
        "ac1": (1, 2),
        "ac1_with_history": (1, 2),
        "named": (1, 2),
        "wrong_named": (1, 2),
        "outages_below_critical": (1, 2),
        "onset_within_10s": (1, 2),
        "false_alarms": (2, 4),
        "healthy_said": (1, 4),
    }
    assert (scores["runs"], scores["spoiled"], scores["why_spoiled"]) == (3, 1, {"two-late": ["late"]})
    assert scores["ac1"]["low"] < 0.5 < scores["ac1"]["high"]
    assert [(one["server"], one["runs"]) for one in scores["servers"]] == [("one", 2), ("two", 1)]
    assert [one["run"] for one in scores["misses"]] == ["one-load"]


def test_the_text_has_every_figure_and_every_reason() -> None:
    text = real_summary(score_real(RUNS, {"three": "not installed"}))
    for part in ("a wrong cause named: 1 of 2", "two-late is spoiled: late", "three was not run", BURST):
        assert part in text


@pytest.mark.parametrize(("others", "right", "wrong"), [(0.5, 1, 0), (0.0, 0, 1)])
def test_a_busy_machine_is_neither_right_nor_wrong(others: float, right: int, wrong: int) -> None:
    answer = said(Level.CRITICAL, CONTENTION, STALLED, named=2)
    run = RealRunScore(truth("one-hang", STALLED, others=others), answer, answer, HEALTHY)
    scores = score_real([run], {})
    assert (scores.ac1.right, scores.wrong_named.right) == (right, wrong)


@pytest.mark.parametrize(
    ("causes", "before", "during", "after", "problem"),
    [
        ((STALLED,), CALM, SLOW, CALM, ""),
        ((STALLED,), CALM, DOWN, CALM, ""),
        ((STALLED,), CALM, DOWN, LESS_SLOW, ""),
        ((STALLED,), CALM, SLOW, LESS_SLOW, ""),
        ((STALLED,), CALM, DOWN, DOWN, "did not recover"),
        ((STALLED,), CALM, SLOW, SLOW, "did not recover"),
        ((STALLED,), CALM, CALM, CALM, "no effect"),
        ((STALLED,), SLOW, SLOW, CALM, "not healthy before"),
        ((), CALM, CALM, CALM, ""),
        ((), CALM, SLOW, CALM, "no fault was injected"),
    ],
)
def test_a_fault_is_the_truth_where_the_clients_recover_without_it(
    causes: tuple[str, ...], before: ClientFigures, during: ClientFigures, after: ClientFigures, problem: str
) -> None:
    run = msgspec.structs.replace(truth("one", *causes), before=before, during=during, after=after)
    reasons = "; ".join(not_an_effect(run))
    assert problem in reasons
    assert bool(problem) == bool(reasons)
