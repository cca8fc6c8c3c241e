"""Named causes are ordered by the latency they account for; their probability is unchanged by it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.diagnosis.noisy_or import Network
from latdoctor.diagnosis.onset import UNSEEN, impact, tail_shares
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.diagnosis.verdict import rank
from latdoctor.evidence.model import Evidence, Origin, Reading
from tests.diagnosis import brute_force as oracle

STAGES = {"ca": "queue", "cb": "compute", "cc": "dependency", "cd": "network"}
RULES = RuleSet(
    tuple(oracle.finding(f"{name}{n}", leak=0.001) for name in STAGES for n in (1, 2)),
    tuple(
        dataclasses.replace(oracle.cause(name, **{f"{name}1": 0.9, f"{name}2": 0.9}), stage=stage)
        for name, stage in STAGES.items()
    ),
)


def share(stage: str, value: float | str, subject: str = "server/a") -> Reading:
    return Reading("tail.share", subject, value, Origin("log"), labels=(("stage", stage),))


def order(tail: dict[str, float], *fired: str) -> list[str]:
    checks = oracle.World(RULES, {f"{name}{n}": 7.0 for name in fired for n in (1, 2)}).checks
    return [row.id for row in rank(RULES, Network.of(RULES, checks), checks, tail) if row.named]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ({}, ["ca", "cb"]),  # alike in all, so by id
        ({"queue": 0.2, "compute": 0.7}, ["cb", "ca"]),
        ({"queue": 0.7, "compute": 0.2}, ["ca", "cb"]),
        ({"queue": 0.7}, ["cb", "ca"]),  # of compute nothing is told: all of it may be its
        ({"queue": 0.0, "compute": 0.0}, ["ca", "cb"]),
    ],
)
def test_the_order_of_named_causes(tail: dict[str, float], expected: list[str]) -> None:
    assert order(tail, "ca", "cb") == expected


@pytest.mark.parametrize(
    ("stage", "tail", "expected"),
    [
        ("queue", {"queue": 0.3, "prepare": 0.6}, 0.3),
        ("dependency", {"prepare": 0.6}, 0.6),
        ("dependency", {"prepare": 0.6, "dependency": 0.1}, 0.1),
        ("preprocess", {"prepare": 0.6}, 0.6),
        ("network", {"queue": 0.3, "prepare": 0.6}, UNSEEN),
        ("", {"queue": 0.3}, UNSEEN),
        ("queue", {}, UNSEEN),
    ],
)
def test_the_share_of_a_stage(stage: str, tail: dict[str, float], expected: float) -> None:
    assert impact(stage, tail) == expected


def test_shares_are_read_of_whoever_has_most_and_kept_within_bounds() -> None:
    readings = (
        share("queue", 0.3),
        share("queue", 0.8, "replica/1@a"),
        share("compute", -0.2),
        share("prepare", 1.7),
        share("finish", float("nan")),
        Reading("tail.share", "server/a", 0.5, Origin("log")),
    )
    assert tail_shares(Evidence(readings=readings)) == {"queue": 0.8, "compute": 0.0, "prepare": 1.0}
    assert tail_shares(Evidence()) == {}


@given(
    st.dictionaries(st.sampled_from(["queue", "compute", "prepare", "network", "x"]), st.floats(0, 1)),
    st.dictionaries(st.sampled_from([finding.id for finding in RULES.findings]), st.floats(-7, 7)),
)
def test_the_tail_changes_only_the_order_of_named_causes(tail: dict[str, float], seen: dict[str, float]) -> None:
    checks = oracle.World(RULES, seen).checks
    network = Network.of(RULES, checks)
    with_it, without = rank(RULES, network, checks, tail), rank(RULES, network, checks)
    assert sorted(with_it, key=lambda row: row.id) == sorted(without, key=lambda row: row.id)
    assert [row.id for row in with_it if not row.named] == [row.id for row in without if not row.named]
    named = [row.named for row in with_it]
    assert named == sorted(named, reverse=True)
