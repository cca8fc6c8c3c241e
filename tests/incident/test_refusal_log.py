"""Log lines on refused requests: one of a kind once in a while, with the number of those left out."""

from __future__ import annotations

from latdoctor.incident.refusal_log import APART, RefusalLog


def test_first_refusal_is_logged_and_others_counted() -> None:
    refusals = RefusalLog()
    assert refusals.line("401", "refused a", "look", 1000.0) == "refused a. Next: look"
    assert [refusals.line("401", "refused b", "look", 1000.0 + n) for n in range(50)] == [""] * 50
    again = refusals.line("401", "refused c", "look", 1000.0 + APART)
    assert again == "refused c; 50 more since the last report. Next: look"
    assert refusals.line("401", "refused d", "look", 1001.0 + APART) == ""


def test_each_kind_has_a_line_of_its_own() -> None:
    refusals = RefusalLog()
    assert refusals.line("401", "no token", "look", 1000.0)
    assert refusals.line("403", "a page", "look", 1000.0)
    assert refusals.line("403", "a page", "look", 1001.0) == ""
