"""What distinguishes causes, computed from their expected findings; sufficient for every confusable pair."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.confusable_causes import Neighbour, confusable_pairs, neighbours, points, points_if_clear
from latdoctor.diagnosis.rule_schema import RuleSet
from tests.diagnosis.small_rules import cause, small_rules, written

SURE = 10  # points: ten times likelier


def between(rules: RuleSet, one: str, other: str) -> Neighbour:
    (found,) = (near for near in neighbours(rules.cause[one], rules, [(one, other)]) if near.cause.id == other)
    return found


def test_points_are_the_ranking_s_own(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    alone, twin = rules.cause["app.alone"], rules.cause["app.twin"]
    long = rules.finding["long"]
    assert points(long, alone, twin) == round(10 * math.log10((1 - 0.98 * 0.05) / 0.02))
    assert points(long, twin, alone) == -points(long, alone, twin)
    assert points(rules.finding["shared"], alone, twin) == 0
    # What a cause is ruled out by speaks against it, one to fifty.
    assert points(rules.finding["off"], alone, twin) == round(10 * math.log10(1 / 50))


def test_what_is_not_seen_speaks_for_the_other(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    alone, twin = rules.cause["app.alone"], rules.cause["app.twin"]
    assert points_if_clear(rules.finding["long"], twin, alone) == round(10 * math.log10(0.98 / (0.98 * 0.05)))
    near = between(rules, "app.twin", "app.alone")
    assert [(one.finding.id, one.points) for one in near.for_this_if_clear] == [("long", 13), ("lonely", 10)]
    assert [one.finding.id for one in near.for_other_if_clear] == ["backlog"]


def test_a_usual_symptom_tells_as_much_less_as_it_is_usual(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    backlog = rules.finding["backlog"]
    assert points(backlog, rules.cause["app.twin"], rules.cause["app.alone"]) == 2
    assert "backlog" not in {one.finding.id for one in between(rules, "app.twin", "app.alone").for_this}


def test_who_shares_a_specific_finding_is_near_and_who_shares_none_is_not(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    (near,) = neighbours(rules.cause["app.alone"], rules, [])
    assert (near.cause.id, near.hard) == ("app.twin", False)
    assert [finding.id for finding in near.shared] == ["shared"]
    assert [one.finding.id for one in near.for_this] == ["lonely", "long"]
    assert near.for_other == ()


def test_published_pairs_come_first(tmp_path: Path) -> None:
    rules = small_rules(tmp_path)
    near = neighbours(rules.cause["app.alone"], rules, [("infra.heat", "app.alone"), ("infra.dead", "fw.bound")])
    assert [(one.cause.id, one.hard) for one in near] == [("infra.heat", True), ("app.twin", False)]


def test_the_most_telling_finding_comes_first(tmp_path: Path) -> None:
    rules = rule_loader.read(
        [
            written(
                tmp_path,
                "- {id: weak, message: w, when: queue.depth > 1, tier: application, leak: 10%}\n"
                "- {id: strong, message: s, when: queue.depth > 2, tier: application, leak: 0.1%}\n"
                "- {id: both, message: b, when: queue.depth > 3, tier: application, leak: 1%}\n",
                {
                    "a.one": cause("a.one", expects="{weak: 95%, strong: 90%, both: 90%}"),
                    "a.two": cause("a.two", expects="{both: 95%}"),
                },
            )
        ]
    )
    assert [one.finding.id for one in between(rules, "a.one", "a.two").for_this] == ["strong", "weak"]


@pytest.mark.parametrize("pair", confusable_pairs(), ids=" / ".join)
def test_something_expected_tells_every_hard_pair_apart_both_ways(pair: tuple[str, str]) -> None:
    found = between(rule_loader.shipped(), *pair)
    assert found.hard
    assert [one for one in (*found.for_this, *found.for_this_if_clear) if one.points >= SURE]
    assert [one for one in (*found.for_other, *found.for_other_if_clear) if one.points >= SURE]
