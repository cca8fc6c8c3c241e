"""The soak in short: nothing about speed, only that every request is accounted for and the drain is clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.soak import verdict

ROOT = Path(__file__).parents[2]
ENDS_WITHIN = 300.0  # patience for a busy machine


def test_a_short_soak_loses_nothing_and_drains() -> None:
    command = [sys.executable, "-m", "bench.soak", "--minutes", "0.3", "--small", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout)
    assert found["wrong"] == []
    assert found["knobs_turned"] > 0
    assert min(found["crowd"].values()) > 0
    counted = found["counted"]
    assert counted["requests"] == sum(counted["endings"].values())
    assert counted["arrivals"] == sum(counted["server"].values()) + counted["cancelled"]
    assert found["drained"]["exit_code"] == 0


def _counted(**changed: Any) -> Any:
    """A run whose accounts are right: 10 requests and 2 retries; of the crowd 3 arrive, and 1 of them vanishes."""
    fields: dict[str, Any] = {
        "requests": 10,
        "endings": {"answered": 8, "refused": 1, "timed_out": 1, "not_sent": 0},
        "attempts": 12,
        "client": {"200": 8, "503": 3, "timeout": 1},
        "crowd": {"422": 1},
        "crowd_arrived": 3,
        "crowd_vanished": 1,
        "crowd_unknown": 1,
        "arrivals": 15,
        "cancelled": 2,
        "server": {"200": 9, "503": 3, "422": 1},
        "shed": {"queue-full": 3},
        "rejected": {"invalid": 1},
    }
    return verdict.Counted(**{**fields, **changed})


def test_accounts_that_are_right_are_right() -> None:
    assert list(verdict.accounts(_counted())) == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a request without an end": ({"requests": 11}, "client: 11 requests"),
    "an attempt without an end": ({"attempts": 13}, "client: 13 attempts"),
    "a reset": ({"client": {"200": 8, "503": 3, "reset": 1}}, "ended with reset"),
    "a request that the server forgot": ({"arrivals": 16, "cancelled": 2}, "server: 16 arrived"),
    "a 503 without a reason": ({"shed": {"queue-full": 2}}, "server: 3 times 429 or 503"),
    "a 4xx without a reason": ({"rejected": {}}, "server: 1 other 4xx"),
    "a 500": ({"server": {"200": 8, "503": 3, "422": 1, "500": 1}}, "were answered 500"),
    "an answer that no client received": ({"server": {"200": 8, "503": 3, "422": 2}, "rejected": {"invalid": 2},
                                        "client": {"200": 8, "503": 4}, "crowd_unknown": 0}, "clients saw 4 times 503"),
    "more arrivals than requests": ({"arrivals": 18, "cancelled": 5}, "between: 18 arrived"),
    "a connection without an answer": ({"crowd": {"422": 1, "gone": 1}}, "closed without an answer"),
    "a vanished client that was not noticed": ({"cancelled": 0, "server": {"200": 11, "503": 3, "422": 1}},
                                               "between: 0 cancelled"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_accounts_are_reported(changed: dict[str, Any], message: str) -> None:
    assert any(message in each for each in verdict.accounts(_counted(**changed)))


def test_a_slope_is_not_moved_by_jumps() -> None:
    points = [(float(at), 2.0 * at + (1000 if at % 5 == 0 else 0)) for at in range(60)]
    assert verdict.slope(points) == pytest.approx(2.0, abs=0.2)
    with pytest.raises(ValueError, match="two points"):
        verdict.slope(points[:1])


def test_the_floor_is_flat_where_only_the_memory_mode_changes() -> None:
    swinging = [(float(at), 400.0 if at % 50 < 10 else 600.0 + at) for at in range(300)]
    assert {value for _, value in verdict.floors(swinging, 75)} == {400.0}
    leaking = [(at, value + at) for at, value in swinging]
    assert verdict.slope(verdict.floors(leaking, 75)) == pytest.approx(1.0, abs=0.35)
    assert verdict.floors([], 75) == []


@pytest.mark.parametrize(("per_request", "leaks"), [(700.0, False), (2048.0, True)])
def test_a_ticket_lost_with_each_request_is_a_leak(per_request: float, leaks: bool) -> None:
    assert verdict.grows(per_request * 50) is leaks
