"""The contributions to a probability add up to it: exactly in nats, and to the rounded total in printed points."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.diagnosis.noisy_or import NONE, OTHER_SET
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.diagnosis.score_breakdown import Account, Term, account, contributions, rival_name
from tests.diagnosis.brute_force import World, cause, finding
from tests.diagnosis.test_noisy_or import LN_1000, network, worlds

POINT = math.log(10) / 10


@given(worlds(), st.sampled_from([1.0, 1.5]))
def test_the_terms_add_up_to_logit_p(world: World, temperature: float) -> None:
    of = network(world, temperature)
    for name in of.causes:
        p = of.probability(name)
        rest = sum(share for chosen, share in of.posterior.items() if name not in chosen)
        assert account(name, of, world.checks).logit == pytest.approx(math.log(p) - math.log(rest), abs=1e-9)


@given(worlds())
def test_each_observed_finding_stands_once_and_its_term_is_its_difference(world: World) -> None:
    of = network(world)
    for name in of.causes:
        found = account(name, of, world.checks)
        best = max((c for c in of.scores if name in c), key=lambda c: of.scores[c])
        assert sorted(t.check for t in found.terms if t.check) == sorted(o.finding.id for o in of.observations)
        for observation in of.observations:
            (term,) = [t for t in found.terms if t.check == observation.finding.id]
            assert term.nats == of.evidence(observation, best) - of.evidence(observation, found.rival)
            assert term.message == next(check.message for check in world.checks if check.id == observation.finding.id)


@given(worlds())
def test_the_rival_is_the_best_set_without_the_cause(world: World) -> None:
    of = network(world)
    for name in of.causes:
        rival = account(name, of, world.checks).rival
        assert name not in rival
        assert of.scores[rival] == max(score for chosen, score in of.scores.items() if name not in chosen)


NATS = st.lists(st.floats(-20, 20), min_size=1, max_size=12)


@given(NATS)
def test_printed_points_add_up_to_the_rounded_total_and_each_is_near_its_own(nats: list[float]) -> None:
    terms = tuple(Term(value, f"t{index}", f"t{index}") for index, value in enumerate(nats))
    rows = contributions(Account(NONE, terms))
    assert sum(row.points for row in rows) == round(sum(value for value in nats if value) / POINT) or math.isclose(
        sum(nats) / POINT % 1, 0.5, abs_tol=1e-6
    )
    by_check = {row.check: row.points for row in rows}
    for index, value in enumerate(nats):
        if f"t{index}" in by_check:
            assert abs(by_check[f"t{index}"] - value / POINT) < 1


@given(NATS)
def test_what_is_under_one_point_is_folded_into_one_line(nats: list[float]) -> None:
    terms = tuple(Term(value, f"t{index}", f"t{index}") for index, value in enumerate(nats))
    rows = contributions(Account(NONE, terms))
    small = [value for value in nats if value != 0 and abs(value / POINT) < 1]
    assert {row.check for row in rows if row.check} == {term.check for term in terms if abs(term.nats / POINT) >= 1}
    folded = [row for row in rows if row.check is None]
    assert len(folded) == (1 if small else 0)
    for row in folded:
        assert row.message == f"{len(small)} smaller finding{'s' if len(small) > 1 else ''}"
        assert abs(row.points - sum(small) / POINT) < 1


def test_lines_stand_by_weight_findings_first() -> None:
    terms = (Term(3.0, "prior"), Term(-1.0, "one", "one"), Term(0.0, "none", "none"), Term(4.0, "two", "two"))
    rows = contributions(Account(NONE, terms))
    assert [(row.check, row.message) for row in rows] == [("two", "two"), ("one", "one"), (None, "prior")]


RULES = RuleSet(
    (finding("own"), finding("its"), finding("shared"), finding("against")),
    (
        cause("a", 3.0, own=0.9, shared=0.9),
        cause("b", 1.0, its=0.9, shared=0.9),
        cause("c", 1.0, ("against",), shared=0.9),
        cause("d", 0.1, own=0.9, its=0.9),
    ),
)


SHARED = {"shared": LN_1000}
OWN = {"own": LN_1000, "shared": LN_1000}


@pytest.mark.parametrize(
    ("of", "seen", "rival", "message"),
    [
        ("a", OWN | {"its": -LN_1000}, ("c",), "how common it is, against its rival"),
        ("a", {"own": LN_1000, "its": LN_1000}, ("d",), "more causes than its rival needs"),
        ("d", {"own": LN_1000, "its": LN_1000}, ("a", "b"), "fewer causes than its rival needs"),
        ("b", SHARED, ("a",), "how common it is, against its rival"),
        ("b", OWN | {"its": LN_1000}, ("a",), "more causes than its rival needs"),
        ("a", {"own": 0.5}, NONE, "before any evidence: most moments have no fault"),
    ],
)
def test_the_first_line_tells_what_the_prior_means(of: str, seen: dict, rival: tuple, message: str) -> None:
    world = World(RULES, seen)
    found = account(of, network(world, 1.0), world.checks)
    assert (found.rival, found.terms[0].message) == (rival, message)


def test_a_finding_that_rules_out_has_a_line_of_its_own_on_either_side() -> None:
    world = World(RULES, {"shared": LN_1000, "against": LN_1000})
    of = network(world)
    hit = {t.message: t.nats for t in account("c", of, world.checks).terms}
    assert hit["ruled out by a finding"] == pytest.approx(-math.log(50))
    strong = cause("c", 1.0, ("against",), own=0.9, its=0.9, shared=0.9)
    against = World(RuleSet(RULES.findings, (strong, cause("d", against=0.5))), dict.fromkeys(RULES.finding, LN_1000))
    found = account("d", network(against), against.checks)
    assert found.rival == ("c",)
    assert "ruled out by a finding" not in {t.message for t in found.terms}, "the best set with d holds c as well"
    alone = World(RuleSet(RULES.findings, (strong, cause("d", own=0.9, its=0.9))), against.seen)
    lines = {t.message: t.nats for t in account("d", network(alone), alone.checks).terms}
    assert lines["its rival is ruled out"] == pytest.approx(math.log(50))


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [(NONE, "nothing wrong"), (OTHER_SET, "a cause outside the catalogue"), (("a",), "a"), (("a", "b"), "a + b")],
)
def test_the_rivals_name(chosen: tuple, shown: str) -> None:
    assert rival_name(chosen) == shown
