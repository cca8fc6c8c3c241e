"""What the dates of answers prove of a server's clock."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from latdoctor.cluster_clock import ServerClock

NOW = 1_795_000_000.4


def dated(time: float) -> str:
    return formatdate(int(time), usegmt=True)


@pytest.mark.parametrize(
    ("answers", "ahead"),
    [
        ([(0.0, 0.1)], 0.0),
        ([(0.5, 0.1)], 0.0),
        ([(90.0, 0.1)], 89.5),
        ([(-90.0, 0.1)], -89.4),
        ([(90.0, 3.0)], 86.6),
        ([(90.0, 3.0), (90.5, 0.1)], 89.5),
    ],
    ids=["same", "within-a-second", "ahead", "behind", "slow-answer", "narrowed-by-a-quick-one"],
)
def test_a_clock_is_ahead_by_what_its_answers_prove(answers: list[tuple[float, float]], ahead: float) -> None:
    """Each answer: how far the server's clock is ahead, and how many seconds it took."""
    clock = ServerClock()
    for by, took in answers:
        clock.answered(dated(NOW + by), NOW, NOW + took)
    assert clock.ahead == pytest.approx(ahead, abs=0.05)
    if ahead:
        assert abs(clock.ahead) <= max(abs(by) for by, _ in answers)


def test_a_clock_that_was_set_is_judged_by_what_came_after() -> None:
    clock = ServerClock()
    clock.answered(dated(NOW + 90), NOW, NOW + 0.1)
    clock.answered(dated(NOW), NOW, NOW + 0.1)
    assert clock.ahead == 0.0


@pytest.mark.parametrize("date", ["", "yesterday"])
def test_an_answer_without_a_date_proves_nothing(date: str) -> None:
    clock = ServerClock()
    clock.answered(date, NOW, NOW + 0.1)
    assert clock.ahead == 0.0
