"""Since when it is slow and what changed shortly before, out of a Prometheus server alone."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import diagnosed, run
from tests.collectors.promql.real import prometheus
from tests.collectors.promql.rollout import END, GONE, SLOW, VERSION, openmetrics

STEP = 90 * 60 / 240  # seconds between two looks at what changes
CURVE = 60.0  # and between two points of a curve


@pytest.fixture(scope="module")
def bot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("rollout"), openmetrics()) as url:
        yield url


def when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def test_slow_since_and_the_version_before_it(bot: str, tmp_path: Path) -> None:
    asked = ["--prometheus", bot, "--since", when(END - 3600), "--until", when(END), "--slo", "500ms"]
    document = diagnosed(*asked, "--keep", str(tmp_path / "look.tar.zst"), code=3)
    since = document["since"]
    assert since["subject"] == "replica/0@a:8002"
    assert abs(since["time"] - (END - SLOW)) <= 2 * CURVE
    changes = {(one["kind"], one["message"], one["subject"]): one["time"] for one in document["changes"]}
    version = changes["change.model", "model version v6 → v7", "replica/0@a:8002"]
    assert END - VERSION <= version <= END - VERSION + STEP
    assert changes["change.process_start", "process started", "server/a:8002"] == END - VERSION - 5
    replicas = changes["change.replicas", "replicas 3 → 2", "service/bot"]
    assert END - GONE <= replicas <= END - GONE + 300 + 2 * STEP  # without a mark that it left, it lingers 5 minutes
    assert any(kind == "change.version" and "gateway version 2.0 → 2.1" in message for kind, message, _ in changes)
    assert not any(subject.endswith("b:8002") for _, _, subject in changes)
    replayed = diagnosed(str(tmp_path / "look.tar.zst"), code=3)
    assert replayed["changes"] == document["changes"]
    shown = run(["diagnose", str(tmp_path / "look.tar.zst"), "-v"]).out
    assert "slow since" in shown
    assert "model version v6 → v7" in shown
