"""The last ten minutes of a service in a real Prometheus, as a run of a playbook compares with them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from latdoctor.case_from_bundle import history_of
from latdoctor.collectors.base import PrometheusServer
from latdoctor.collectors.promql.client import prometheus_endpoint
from tests.collectors.promql.real import prometheus

RATE, EDGES = 50.0, (0.1, 0.2, 0.4, 0.8)
LABELS = 'instance="llm:8000",job="llm",model="bert",replica="r1"'


def page(now: float, scrape: float, worse_since: float) -> str:
    """Twenty minutes of counters; every answer takes 100 to 200 ms, and 400 to 800 ms from `worse_since` on."""
    times = [now - 1200 + number * scrape for number in range(int(1200 / scrape))]
    rows: dict[str, list[str]] = {}
    for at in times:
        total = RATE * (at - times[0])
        late = RATE * max(0.0, at - worse_since)
        counts = {"0.1": 0.0, "0.2": total - late, "0.4": total - late, "0.8": total, "+Inf": total}
        for edge, count in counts.items():
            name = f'ref_request_seconds_bucket{{{LABELS},le="{edge}"}}'
            rows.setdefault("ref_request_seconds", []).append(f"{name} {count} {at}")
        rows["ref_request_seconds"] += [
            f"ref_request_seconds_count{{{LABELS}}} {total} {at}",
            f"ref_request_seconds_sum{{{LABELS}}} {total * 0.15} {at}",
        ]
        rows.setdefault("ref_arrivals", []).append(f"ref_arrivals_total{{{LABELS}}} {total} {at}")
        rows.setdefault("ref_info", []).append(f'ref_info{{{LABELS},version="1",model_version="v1"}} 1 {at}')
        rows.setdefault("up", []).append(f'up{{instance="llm:8000",job="llm"}} 1 {at}')
    kinds = {"ref_request_seconds": "histogram", "ref_arrivals": "counter", "ref_info": "gauge", "up": "gauge"}
    blocks = (f"# TYPE {name} {kinds[name]}\n" + "\n".join(lines) for name, lines in rows.items())
    return "\n".join(blocks) + "\n# EOF\n"


@pytest.mark.parametrize(("scrape", "step"), [(5.0, 5.0), (15.0, 15.0)])
def test_windows_are_as_long_as_the_scrape_interval(tmp_path: Path, scrape: float, step: float) -> None:
    now = time.time()
    with prometheus(tmp_path, page(now, scrape, worse_since=now - 120)) as url:
        found = history_of(PrometheusServer(prometheus_endpoint(url), now - 3600, now))(5.0)
    assert found.step == pytest.approx(step)
    (p99,) = (values for (signal, _), values in found.values.items() if signal == "latency.p99")
    (rate,) = (values for (signal, _), values in found.values.items() if signal == "arrival.rate")
    assert len(p99) >= 0.9 * 600 / step
    assert p99[0] == pytest.approx(0.199, abs=0.001)
    assert p99[-1] == pytest.approx(0.796, abs=0.001)
    assert sum(value > 0.5 for value in p99) == pytest.approx(120 / step, abs=2)
    assert rate[len(rate) // 2] == pytest.approx(RATE, rel=0.02)


def test_server_that_does_not_answer_leaves_no_history_and_says_why() -> None:
    now = time.time()
    found = history_of(PrometheusServer(prometheus_endpoint("http://127.0.0.1:9"), now - 3600, now))(5.0)
    assert found.values == {}
    assert "127.0.0.1:9" in found.source
