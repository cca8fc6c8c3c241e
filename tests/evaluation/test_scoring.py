"""Scores of small examples, and properties of all scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from latdoctor.evaluation import report
from latdoctor.evaluation.ground_truth import FamilySplit, GroundTruth, RunKind, split
from latdoctor.evaluation.scoring import DiagnosisScores, ac_at, average_at_5, score
from tests.evaluation.samples import answered, ground_truth

A, B, C = "app.load.burst", "app.load.overload", "infra.io.stall"
SPLIT = FamilySplit(tuned=("app.load",), held_out=("infra.io",), pairs=((A, B),))


def scored(*pairs: tuple[GroundTruth, object]) -> DiagnosisScores:
    return score({one.run: one for one, _ in pairs}, [answer for _, answer in pairs], SPLIT)  # type: ignore[misc]


def well(run: str, scenario: str, kind: RunKind = RunKind.LIVE) -> GroundTruth:
    return replace(ground_truth(run, kind=kind), scenario=scenario)


def test_the_accuracy_of_three_runs() -> None:
    found = scored(
        (ground_truth("first", A), answered("first", [A, B])),
        (ground_truth("third", A), answered("third", [C, B, A])),
        (ground_truth("nowhere", C), answered("nowhere", [A])),
    )
    assert (found.ac1.right, found.ac1.of) == (1, 3)
    assert found.ac3.right == 2
    assert found.avg5.value == pytest.approx((1 + 3 / 5 + 0) / 3)
    assert [miss.run for miss in found.misses] == ["nowhere", "third"]


def test_accuracy_with_two_causes() -> None:
    assert ac_at(1, (A, B), (B, C, A)) == 1
    assert ac_at(3, (A, B), (B, C, A)) == 1
    assert ac_at(2, (A, B), (B, C, A)) == 0.5
    assert ac_at(3, (A,), ()) == 0
    assert average_at_5((A, B), (A, B)) == 1


def test_both_of_two_are_the_first_two_in_any_order() -> None:
    found = scored(
        (ground_truth("both", A, B), answered("both", [B, A])),
        (ground_truth("one", A, B), answered("one", [A, C, B])),
        (ground_truth("single", A), answered("single", [A])),
    )
    assert (found.both_of_two.right, found.both_of_two.of) == (1, 2)


def test_a_named_cause_where_nothing_is_wrong_is_a_false_alarm() -> None:
    found = scored(
        (ground_truth("well"), answered("well")),
        (ground_truth("busy"), answered("busy", {A: 0.5})),
        (ground_truth("alarmed"), answered("alarmed", [A])),
    )
    assert (found.false_alarms.share.right, found.false_alarms.share.of) == (1, 3)
    assert found.false_alarms.runs == ("alarmed",)
    assert found.ac1.of == 0
    assert found.ac1.value is None
    assert (found.named_right.right, found.named_right.of) == (0, 1)


def test_sixty_well_runs_without_an_alarm_bound_its_rate() -> None:
    found = scored(*((ground_truth(str(n)), answered(str(n))) for n in range(60)))
    assert found.false_alarms.bound == pytest.approx(0.0487, abs=1e-4)


def test_false_alarms_stand_by_what_the_runs_are_an_example_of() -> None:
    found = scored(
        (well("a", "no-fault"), answered("a")),
        (well("b", "busy"), answered("b", [A])),
        (well("c", "busy"), answered("c")),
        (well("d", "dependency-slow"), answered("d")),
        (well("e", "healthy-but-busy", kind=RunKind.SYNTHETIC), answered("e")),
        (ground_truth("wrong", A), answered("wrong", [A])),
    )
    reported = {one.name: (one.false_alarms.share.right, one.false_alarms.share.of) for one in found.healthy}
    assert reported == {
        "live, calm": (0, 1),
        "live, busy": (1, 2),
        "live, the load of a fault's scenario without its fault": (0, 1),
        "synthetic, busy": (0, 1),
    }
    assert sum(of for _, of in reported.values()) == found.false_alarms.share.of


def test_tables_have_the_false_alarm_bound_and_mark_pairs_with_few_runs() -> None:
    runs = [(well(str(n), "busy"), answered(str(n))) for n in range(60)]
    runs += [(ground_truth(f"a{n}", A), answered(f"a{n}", [A, B])) for n in range(20)]
    runs += [(ground_truth("b", B), answered("b", [A, B]))]
    tables = {table.name: table for table in report.tables(scored(*runs))}
    bound = "0 of 60: 0.0% [0.0%–6.0%]; the true rate is at most 4.9%, below 3/60 (one-sided 95 %)"
    assert ("live, busy", bound) in tables["healthy-runs"].rows
    assert tables["confusable-pairs"].rows == [
        (A, B, "20 of 20: 100.0% [83.9%–100.0%]"),
        (B, A, "0 of 1: 0.0% [0.0%–79.3%] (few)"),
    ]
    separated = ("confusable pairs separated", "1 of 2 in 90% of the runs or more; 1 of 2 with 20 runs")
    assert separated in tables["summary"].rows


def test_naming_nothing_is_abstaining_and_costs_no_precision() -> None:
    found = scored(
        (ground_truth("x", A), answered("x", {A: 0.4})), (ground_truth("y", A), answered("y", {A: 0.7, C: 0.65}))
    )
    assert (found.abstained.right, found.abstained.of) == (1, 2)
    assert (found.named_right.right, found.named_right.of) == (1, 2)


def test_calibration_is_that_of_the_top_cause_and_of_every_run() -> None:
    found = scored((ground_truth("x", A), answered("x", {A: 0.8})), (ground_truth("y"), answered("y")))
    assert found.brier.value == pytest.approx((0.04 + 0) / 2)
    assert sum(one.of for one in found.bins) == 2


def test_cited_findings_are_grounded_where_the_fault_moved_them() -> None:
    found = scored(
        (ground_truth("x", A), answered("x", [A], cited=["f", "g"], moved=["f", "h"])),
        (ground_truth("wrong", A), answered("wrong", [B], cited=["f"], moved=[])),
        (ground_truth("made", A, kind=RunKind.SYNTHETIC), answered("made", [A], cited=["f"])),
    )
    assert found.grounded.value == 0.5
    assert found.grounded.of == 1


def test_confusable_pairs_are_scored_in_both_directions() -> None:
    found = scored(
        (ground_truth("a", A), answered("a", [A, B])),
        (ground_truth("b", B), answered("b", [A, B])),
        (ground_truth("unlisted", B), answered("unlisted", [])),
    )
    reported = {(pair.cause, pair.neighbour): pair.separated for pair in found.hard_pairs}
    assert reported[A, B].value == 1
    assert (reported[B, A].right, reported[B, A].of) == (0, 2)


def test_run_with_harmless_neighbour_does_not_count_for_the_pair() -> None:
    both = replace(ground_truth("both", A), harmless=(B,))
    found = scored((both, answered("both", [B, A])))
    reported = {(pair.cause, pair.neighbour): pair.separated for pair in found.hard_pairs}
    assert reported[A, B].of == 0
    assert (found.ac1.right, found.ac1.of) == (0, 1), "it is no right answer, though"


def test_an_unknown_incident_is_wrongly_named_outside_its_own_hard_pair_only() -> None:
    found = scored(
        (ground_truth("neighbour", A), answered("neighbour", [A], unknown=[B])),
        (ground_truth("stranger", A), answered("stranger", [A], unknown=[C])),
        (ground_truth("nothing", C), answered("nothing", [C], unknown=[])),
    )
    assert (found.unknown_named.right, found.unknown_named.of) == (1, 3)
    assert {one.cause: one.wrongly_named.right for one in found.hidden_causes} == {A: 1, C: 0}


def test_variants_are_scored_with_the_plain_variant_of_the_same_runs() -> None:
    found = scored(
        (ground_truth("x", A), answered("x", [A])),
        (ground_truth("x", A), answered("x", [B, A], view="no host")),
        (ground_truth("x", A), answered("x", {A: 0.3}, view="60 s early")),
        (ground_truth("y", A), answered("y", [C])),
    )
    assert found.ac1.of == 2
    assert [row.name for row in found.withheld] == ["no host", "no host: plain variant of the same runs"]
    assert [row.accuracy.ac1.right for row in found.withheld] == [0, 1]
    assert found.displaced[0].mean_probability == 0.3


def test_families_and_the_split_are_apart() -> None:
    found = scored((ground_truth("x", A), answered("x", [A])), (ground_truth("y", C), answered("y", [A])))
    assert found.tuned.ac1.value == 1
    assert found.held_out.ac1.value == 0
    assert [(row.name, row.accuracy.ac1.value) for row in found.families] == [("app.load", 1), ("infra.io", 0)]


CAUSES = st.sampled_from([A, B, C])


@given(
    st.lists(
        st.tuples(st.lists(CAUSES, max_size=2, unique=True), st.lists(CAUSES, max_size=3, unique=True)), max_size=12
    )
)
def test_what_holds_of_all_scores(runs: list[tuple[list[str], list[str]]]) -> None:
    pairs = [(ground_truth(str(n), *causes), answered(str(n), ranking)) for n, (causes, ranking) in enumerate(runs)]
    found = scored(*pairs)
    assert found == scored(*pairs[::-1])
    assert found.ac1.of == sum(bool(causes) for causes, _ in runs)
    assert found.ac1.of + found.false_alarms.share.of == len(runs)
    if found.ac1.of:
        assert found.avg5.value is not None
        assert 0 <= found.avg5.value <= 1
        assert len(found.misses) == found.ac1.of - found.ac1.right


def test_the_published_split_names_every_family_of_the_catalogue_once() -> None:
    from latdoctor.diagnosis.rule_loader import shipped
    from latdoctor.evaluation.ground_truth import family

    published = split()
    listed = [*published.tuned, *published.held_out]
    assert len(listed) == len(set(listed))
    assert set(listed) == {family(cause.id) for cause in shipped().causes}
    assert {name for pair in published.pairs for name in pair} <= set(shipped().cause)
