"""Likeness keeps its laws, and what was alike is told with what helped then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.incident import events
from latdoctor.incident.similar import ALIKE, Features, likeness, past_incident, past_incidents, similar
from latdoctor.remediation.run_result import Outcome
from latdoctor.report.incidents import similar_incident_line
from tests.incident.scenarios import BOOK, CAUSE, RUN, Log, carried_out, cause, diagnosed, promo_rush

NAMES = st.frozensets(st.sampled_from("abcdef"), max_size=4)
MIN_PROBABILITY = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.2, 1.0), max_size=4)
FEATURES = st.builds(Features, MIN_PROBABILITY, NAMES, NAMES, NAMES)
NOTHING = Features({}, frozenset(), frozenset(), frozenset())


@given(FEATURES, FEATURES)
def test_it_is_the_same_from_either_side_and_between_0_and_1(one: Features, other: Features) -> None:
    assert likeness(one, other) == likeness(other, one)
    assert 0.0 <= likeness(one, other) <= 1.0 + 1e-9


@given(FEATURES)
def test_it_is_one_with_itself_and_none_with_nothing(one: Features) -> None:
    assert likeness(one, one) == (0.0 if one == NOTHING else pytest.approx(1.0))
    assert likeness(one, NOTHING) == 0.0


@given(FEATURES, FEATURES)
def test_where_nothing_is_shared_it_is_0(one: Features, other: Features) -> None:
    apart = Features(
        {name.upper(): ramp for name, ramp in other.causes.items()},
        frozenset(name.upper() for name in other.findings),
        frozenset(name.upper() for name in other.subjects),
        frozenset(name.upper() for name in other.tiers),
    )
    assert likeness(one, apart) == 0.0


@given(FEATURES, FEATURES)
def test_a_finding_more_in_common_never_makes_them_less_alike(one: Features, other: Features) -> None:
    def more(it: Features) -> Features:
        return Features(it.causes, it.findings | {"z"}, it.subjects, it.tiers)

    assert likeness(more(one), more(other)) >= likeness(one, other) - 1e-9


def test_the_cause_weighs_most() -> None:
    one = Features({"a": 1.0}, frozenset("f"), frozenset({"replica"}), frozenset({"application"}))
    same_cause = Features({"a": 1.0}, frozenset("g"), frozenset({"gpu"}), frozenset({"framework"}))
    same_findings = Features({"b": 1.0}, frozenset("f"), frozenset({"gpu"}), frozenset({"framework"}))
    same_place = Features({"b": 1.0}, frozenset("g"), frozenset({"replica"}), frozenset({"application"}))
    assert [likeness(one, other) for other in (same_cause, same_findings, same_place)] == [0.5, 0.3, 0.2]
    assert likeness(one, same_place) < ALIKE


def other(name: str, *causes: events.CauseRecord, fired: tuple[str, ...] = ("x",)) -> Log:
    log = Log(name)
    log.add(0, events.OPENED, events.IncidentOpened(f"of {name}", (), events.OpenedBy.HAND, "", ""))
    log.add(1, events.DIAGNOSED, diagnosed(*causes, fired=fired))
    return log


def test_what_is_known_of_an_incident() -> None:
    told = past_incident(promo_rush().incident)
    assert (told.named, told.worked, told.taken_back, told.outcome, told.level) == (
        (CAUSE,), (BOOK,), (), "resolved", "critical",
    )  # fmt: skip
    assert told.features == Features(
        {CAUSE: 1.0}, frozenset({"batch-sizes-bimodal"}), frozenset({"replica"}), frozenset({"application"})
    )


def test_rolled_back_playbook_did_not_work() -> None:
    log = other("inc-1")
    log.add(2, events.RUN_JOINED, events.RunJoined(RUN))
    carried_out(log, 2, outcome=Outcome.ROLLED_BACK)
    told = past_incident(log.incident)
    assert (told.worked, told.taken_back) == ((), (BOOK,))
    assert "rolled back" in similar_incident_line(similar(told.features, [told]))


def test_most_similar_first_and_dissimilar_excluded() -> None:
    alike = other("inc-alike", cause(), fired=("batch-sizes-bimodal", "y"))
    near = other("inc-near", cause(), cause("app.load.burst"), fired=("y",))
    far = other("inc-far", cause("infra.gpu.thermal"))
    wanted = past_incident(promo_rush().incident)
    found = similar(wanted.features, past_incidents([far.incident, near.incident, alike.incident]))
    assert [one.past.id for one in found] == ["inc-alike", "inc-near"]
    assert [one.same_causes for one in found] == [(CAUSE,), (CAUSE,)]


def test_line_for_a_diagnosis_prefers_what_worked() -> None:
    again, helped = past_incident(other("inc-again", cause()).incident), past_incident(promo_rush().incident)
    line = similar_incident_line(similar(again.features, [again, helped]))
    assert line == (
        f"similar incident: 2026-11-22 {helped.id} same cause; {BOOK} verified (1 more: latdoctor incidents similar)"
    )
    assert similar_incident_line(()) == ""


def test_a_candidate_counts_for_what_it_is_sure_of() -> None:
    named = past_incident(other("inc-1", cause(), fired=()).incident).features
    half = past_incident(other("inc-2", cause(named=False, probability=0.5), fired=()).incident).features
    unlikely = past_incident(other("inc-3", cause(named=False, probability=0.05), fired=()).incident).features
    assert likeness(named, half) == pytest.approx((0.5 * 0.5 + 0.2) / 0.7)
    assert unlikely == NOTHING
