"""`latdoctor capacity history` on a real Prometheus server with the history of two replicas of the reference server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.collectors.promql.real import prometheus

END, LASTS, EVERY = 1_795_000_020, 3600, 15  # seconds; a whole minute
BOUNDS = (0.025, 0.05, 0.1, 0.2, 0.4)
# Of a hundred requests so many are answered within each bound.
SHARES = (0.3, 0.7, 0.95, 0.998, 1.0)
MEAN = 0.05


def rate(at: int, share: float) -> float:
    """From 5 to 45 requests a second within the hour."""
    return share * (5 + 40 * (at - END + LASTS) / LASTS)


def counted(share: float) -> Iterator[tuple[int, float]]:
    total = 0.0
    for at in range(END - LASTS, END + 1, EVERY):
        yield at, total
        total += rate(at, share) * EVERY


def openmetrics(replicas: dict[str, float]) -> str:
    """`replicas`: the share of the load that each has."""
    lines = ["# TYPE ref_arrivals counter"]
    for name, share in replicas.items():
        labels = f'job="chat",instance="{name}:8000",replica="{name}",backend="cpu"'
        lines += [f"ref_arrivals_total{{{labels}}} {total:.0f} {at}" for at, total in counted(share)]
    lines.append("# TYPE ref_request_seconds histogram")
    for name, share in replicas.items():
        labels = f'job="chat",instance="{name}:8000",replica="{name}",backend="cpu"'
        for bound, within in zip((*map(str, BOUNDS), "+Inf"), (*SHARES, 1.0), strict=True):
            inside = f'{labels},le="{bound}"'
            lines += [
                f"ref_request_seconds_bucket{{{inside}}} {total * within:.0f} {at}" for at, total in counted(share)
            ]
        lines += [f"ref_request_seconds_sum{{{labels}}} {total * MEAN:.3f} {at}" for at, total in counted(share)]
        lines += [f"ref_request_seconds_count{{{labels}}} {total:.0f} {at}" for at, total in counted(share)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with prometheus(folder, openmetrics({"a": 1.0, "b": 0.9})) as url:
        yield url


def asked(url: str, *more: str) -> list[str]:
    end = datetime.fromtimestamp(END, UTC).isoformat()
    return ["capacity", "history", "--prometheus", url, "--since", "1h", "--until", end, *more]


def test_each_replica_is_a_replica_and_each_minute_a_step(server: str) -> None:
    outcome = run([*asked(server, "--slo", "500ms"), "-o", "json"])
    assert outcome.code in (0, 4), outcome.err
    found = json.loads(outcome.out)
    assert (found["source"], found["target"]) == ("history", "Reference server")
    history = found["history"]
    assert history["replicas"] == 2
    assert 100 <= history["windows"] <= 120
    assert history["service_time"] == pytest.approx(MEAN, rel=0.02)
    assert history["highest_rate"] == pytest.approx(45, rel=0.05)
    assert found["limit"] >= 40
    working, answered = history["speeds"][-1]
    assert working == pytest.approx(answered * MEAN, rel=0.02)  # Little's law


def test_the_limit_is_no_more_than_what_was_within_the_objective(server: str) -> None:
    """P99 lies between 100 and 200 ms at every load."""
    outcome = run([*asked(server, "--slo", "80ms")])
    assert "no load of the history met P99 ≤ 80 ms" in outcome.out
    assert "at least" not in outcome.out


def test_the_plan_takes_what_was_saved(server: str, tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    file.write_text(run([*asked(server), "-o", "json"]).out)
    outcome = run(["capacity", "plan", str(file), "--rate", "300"])
    assert "estimated from history, not measured" in outcome.out


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--select", '{job="other"}'], 2, "no server that latdoctor knows"),
        (["--select", "job"], 2, "--select"),
        (["--step", "1s"], 2, "--step"),
        (["--slo", "soon"], 2, "--slo"),
    ],
)
def test_what_cannot_be_answered_is_an_error(server: str, more: list[str], code: int, words: str) -> None:
    outcome = run(asked(server, *more))
    assert (outcome.code, words in outcome.err) == (code, True), outcome.err
