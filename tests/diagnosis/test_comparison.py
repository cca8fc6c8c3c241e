"""Two diagnoses compared: changes of the answer, and smaller shifts."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.diagnosis.comparison import contrast
from latdoctor.diagnosis.rule_schema import RuleSet
from tests.diagnosis.small_rules import small_rules, told

ALONE = {"long": True, "lonely": True, "shared": True, "slow": True}
HEAT = {"hot": True, "power": True, "slow": True}


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    return small_rules(tmp_path)


def test_a_diagnosis_does_not_differ_from_itself(rules: RuleSet) -> None:
    one = told(rules, **ALONE)
    found = contrast(one, told(rules, **ALONE))
    assert not found.any
    assert not found.answer_changed
    assert (found.causes, found.checks) == ((), ())


def test_another_cause_is_another_answer(rules: RuleSet) -> None:
    found = contrast(told(rules, **ALONE), told(rules, **HEAT))
    assert found.answer_changed
    shifts = {shift.id: shift for shift in found.causes}
    assert shifts["infra.heat"].after is not None
    assert (shifts["infra.heat"].after.rank, shifts["infra.heat"].after.named) == (1, True)
    assert shifts["app.alone"].before is not None
    assert shifts["app.alone"].before.named
    assert {shift.id for shift in found.checks if shift.appeared} == {"hot", "power"}
    assert {shift.id for shift in found.checks if shift.went} == {"long", "lonely", "shared"}
    assert [shift.appeared for shift in found.checks] == sorted((s.appeared for s in found.checks), reverse=True)


def test_the_other_way_round_it_is_the_mirror(rules: RuleSet) -> None:
    there, back = (
        contrast(told(rules, **ALONE), told(rules, **HEAT)),
        contrast(told(rules, **HEAT), told(rules, **ALONE)),
    )
    assert {(s.id, s.before, s.after) for s in there.causes} == {(s.id, s.after, s.before) for s in back.causes}
    assert {(s.id, s.before, s.after) for s in there.checks} == {(s.id, s.after, s.before) for s in back.checks}


def test_what_went_says_what_it_was(rules: RuleSet) -> None:
    found = contrast(told(rules, backlog=50.0), told(rules))
    (shift,) = (shift for shift in found.checks if shift.id == "backlog")
    assert (shift.before, shift.after, shift.message) == ("fired", "clear", "50 wait")


def test_a_check_that_is_no_longer_seen_is_told(rules: RuleSet) -> None:
    found = contrast(told(rules), told(rules, hot=None))
    assert [(shift.id, shift.before, shift.after) for shift in found.checks] == [("hot", "clear", "not-evaluated")]


def test_a_finding_that_only_one_set_of_rules_has(rules: RuleSet) -> None:
    fewer = RuleSet(
        tuple(f for f in rules.findings if f.id != "backlog"), tuple(c for c in rules.causes if c.id != "app.twin")
    )
    found = contrast(told(fewer, backlog=True), told(rules, backlog=True))
    (shift,) = found.checks
    assert (shift.id, shift.before, shift.after) == ("backlog", None, "fired")
