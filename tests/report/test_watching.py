"""What a look that goes on tells: one line of a diagnosis, and the screen."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.report.console import StatusChange, line, screen, stamped, summary
from tests.diagnosis.small_rules import small_rules, told


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    return small_rules(tmp_path)


def test_a_line_says_how_bad_why_how_sure_and_what_hurts(rules: RuleSet) -> None:
    diagnosis = told(rules, hot=True, power=True, slow=True)
    assert summary(diagnosis) == "critical: infra.heat"
    assert line(diagnosis).startswith("critical: infra.heat (")
    assert line(diagnosis).endswith(" %): P99: 100 s")
    assert line(told(rules)) == "healthy: no cause found"


def test_a_line_has_its_moment() -> None:
    assert stamped(StatusChange(1_790_000_000.0, "healthy")) == "2026-09-21 14:13:20 UTC  healthy"


def test_the_screen_keeps_to_its_width_and_shows_the_latest_changes(rules: RuleSet) -> None:
    out = io.StringIO()
    console = Console(file=out, width=60, markup=False, highlight=False)
    lately = [StatusChange(float(number), f"change {number} {'long ' * 30}") for number in range(9)]
    console.print(screen(told(rules, slow=True), lately, "look 9"))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert [row[10:18] for row in lines[1:5]] == [f"change {number}" for number in (5, 6, 7, 8)]
    assert lines[0].startswith("look 9")
    assert lines[6].startswith("CRITICAL")
