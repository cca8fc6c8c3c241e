"""`--since` counts from `--until`, written or not, for every source that has a past."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from latdoctor.cli import time_args
from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.options import SourceOptions
from latdoctor.errors import UsageError
from tests.cli.running import run

NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z
HOUR = 3600.0
SOURCES: dict[str, dict[str, Any]] = {
    "Prometheus": {"prometheus": "h:9090"},
    "a log": {"log": (Path("a.log"),)},
    "both": {"prometheus": "h:9090", "log": (Path("a.log"),)},
}


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time_args.time, "time", lambda: NOW)


@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2h", "", (NOW - 2 * HOUR, NOW)),
        ("2h", "3h", (NOW - 5 * HOUR, NOW - 3 * HOUR)),
        ("", "3h", (NOW - 4 * HOUR, NOW - 3 * HOUR)),
        ("30min", "09:06:40", (NOW - 2.5 * HOUR, NOW - 2 * HOUR)),
        ("08:06:40", "09:06:40", (NOW - 3 * HOUR, NOW - 2 * HOUR)),
        ("23:06:40", "00:06:40", (NOW - 12 * HOUR, NOW - 11 * HOUR)),  # across midnight
        ("1h", "2026-11-01T00:00:00Z", (1_793_491_200.0 - HOUR, 1_793_491_200.0)),
        ("23:00", "2026-11-01T00:00:00Z", (1_793_491_200.0 - HOUR, 1_793_491_200.0)),  # the day before --until
        ("2026-10-31T22:00:00Z", "2026-11-01T00:00:00Z", (1_793_491_200.0 - 2 * HOUR, 1_793_491_200.0)),
    ],
)
def test_both_ends(sources: dict[str, Any], since: str, until: str, expected: tuple[float, float]) -> None:
    found = time_args.past_of(SourceOptions(**sources, since=since, until=until), TargetSettings())
    assert found is not None
    assert (found.since, found.until) == expected


@pytest.mark.parametrize(("since", "until"), [("09:00", "09:00"), ("2026-11-02", "2026-11-01")])
def test_an_empty_range_is_refused(since: str, until: str) -> None:
    with pytest.raises(UsageError, match="--since is not before --until"):
        time_args.past_of(SourceOptions(log=(Path("a.log"),), since=since, until=until), TargetSettings())


def test_the_server_and_the_logs_of_one_request_have_one_range(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("2026-11-18T07:30:00Z ERROR CUDA error: unknown error\n2026-11-18T08:06:00Z INFO up\n")
    outcome = run(["diagnose", "--log", str(log), "--since", "1h", "--until", "3h", "--output", "json"])
    document = json.loads(outcome.out)
    (check,) = [one for one in document["checks"] if one["id"] == "cuda-calls-fail"]
    assert check["status"] == "fired", document["gaps"]


@pytest.mark.parametrize(
    ("last", "since", "until"),
    [
        pytest.param("2026-11-18T07:30:00Z", "1h", 1_794_987_000.0, id="it-ended-earlier"),
        pytest.param("2026-11-18T07:30:00Z", "06:45", 1_794_987_000.0, id="a-time-of-the-day-before-its-end"),
        pytest.param("2026-11-18T11:05:40Z", "1h", NOW, id="it-goes-on"),
        pytest.param("2026-11-18T07:30:00Z", "2026-11-18T09:00:00Z", NOW, id="a-start-after-its-end"),
        pytest.param("", "1h", NOW, id="its-end-is-not-known"),
    ],
)
def test_without_an_end_a_range_ends_with_the_file(tmp_path: Path, last: str, since: str, until: float) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"2026-11-18T06:00:00Z INFO up\n{last} INFO request done\nTraceback\n" if last else "INFO up\n")
    found = time_args.past_of(SourceOptions(log=(log,), since=since), TargetSettings())
    assert found is not None
    assert found.until == until
