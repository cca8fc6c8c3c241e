"""A P99 beyond the highest bucket, through the whole command: it may break the SLO, and never keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import checks, diagnosed


def _page(folder: Path) -> Path:
    """Of 1000 requests 100 took longer than the highest bound, a second."""
    family = "vllm:e2e_request_latency_seconds"
    buckets = [f'{family}_bucket{{model_name="m",le="{bound}"}} {count}' for bound, count in
               (("0.1", 500), ("1.0", 900), ("+Inf", 1000))]  # fmt: skip
    sums = [f'{family}_sum{{model_name="m"}} 900', f'{family}_count{{model_name="m"}} 1000']
    page = folder / "vllm.prom"
    page.write_text("\n".join([f"# TYPE {family} histogram", *buckets, *sums]) + "\n")
    return page


@pytest.mark.parametrize(
    ("slo", "code", "status", "message"),
    [
        ("500ms", 3, "fired", "P99 is at least 1 s; the SLO is 500 ms"),
        ("2s", 4, "not-evaluated", "latency.p99 is at least 1 s, which leaves open whether it is > 2 s (slo.p99)"),
    ],
)
def test_a_p99_beyond_every_bucket(tmp_path: Path, slo: str, code: int, status: str, message: str) -> None:
    document = diagnosed("--metrics", str(_page(tmp_path)), "--slo", slo, code=code)
    found = checks(document, status)["p99-over-slo"]
    assert message in (found["message"], found["reason"])
    assert document["verdict"]["level"] == ("critical" if code == 3 else "inconclusive")
    if code == 4:
        assert f"application: p99-over-slo: {message}" in document["verdict"]["reasons"]
