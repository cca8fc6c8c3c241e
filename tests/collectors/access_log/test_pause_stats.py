"""The first requests after pauses: slow again and again, or by chance."""

from __future__ import annotations

import pytest

from tests.collectors.access_log.test_request_logs import nginx, parsed, value

HOUR = 3600.0
CASES = {
    # (pauses, seconds of each, duration of the firsts, of the others): pauses found, ratio
    "scaled-to-zero": ((4, HOUR, (38.0, 41.0, 39.0, 40.0), 0.4), (4.0, pytest.approx(39 / 0.4, rel=0.05))),
    "warm-after-pauses": ((4, HOUR, (0.4, 0.5, 0.4, 0.4), 0.4), (4.0, pytest.approx(1, rel=0.3))),
    "one-of-four-slow": ((4, HOUR, (0.4, 30.0, 0.4, 0.4), 0.4), (4.0, pytest.approx(1, rel=0.3))),
    "two-pauses": ((2, HOUR, (38.0, 41.0), 0.4), (None, None)),
    "short-pauses": ((4, 90.0, (38.0, 41.0, 39.0, 40.0), 0.4), (None, None)),
}


def log(pauses: int, length: float, firsts: tuple[float, ...], others: float) -> list[str]:
    """Five requests, then as many behind each pause; a line is written when a request ends."""
    now, lines = 0.0, []
    for group in range(pauses + 1):
        now += length if group else 0.0
        for number in range(5):
            took = firsts[group - 1] if group and not number else others
            now += took
            lines.append(nginx(now, took))
            now += 1.0
    return lines


@pytest.mark.parametrize(("made", "expected"), CASES.values(), ids=CASES)
def test_first_requests_after_pauses(
    made: tuple[int, float, tuple[float, ...], float], expected: tuple[object, object]
) -> None:
    found = parsed(*log(*made))
    assert (value(found, "start.pauses"), value(found, "start.after_pause_ratio")) == expected
