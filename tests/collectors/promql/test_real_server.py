"""An hour in a real Prometheus: what is judged of it, since when, per replica and GPU; and the same from a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from latdoctor.collectors.base import CollectRequest, CollectResult, PrometheusServer
from latdoctor.collectors.outage import ANSWERING
from latdoctor.collectors.promql import COLLECTOR, collector
from latdoctor.collectors.promql.client import prometheus_endpoint
from latdoctor.detectors import derive
from latdoctor.dialects.promql import parse_matchers
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Evidence, Gap, Series, Window
from tests.collectors.prometheus.serving import FakeClock
from tests.collectors.promql.history import BAD, END, HOUR, YOUNG


def asked(
    url: str, *, since: float = HOUR, until: float = END, window: float = 300.0, select: str = ""
) -> tuple[CollectResult, Evidence]:
    server = PrometheusServer(prometheus_endpoint(url), until - since, until, window, parse_matchers(select))
    collected = COLLECTOR.collect(CollectRequest(prometheus=server), FakeClock())
    return collected, COLLECTOR.parse(collected.artifacts)


@pytest.fixture(scope="module")
def seen(real: str) -> Evidence:
    collected, evidence = asked(real)
    assert not collected.gaps
    return evidence


def value(seen: Evidence, signal: str, subject: str) -> object:
    found = [one.value for one in seen.readings if (one.signal, one.subject) == (signal, subject)]
    assert len(found) < 2
    return found[0] if found else None


def series(seen: Evidence, signal: str, subject: str) -> Series:
    (found,) = (one for one in seen.series if (one.signal, one.subject) == (signal, subject))
    return found


A, B, C = (f"model/org/llm@{name}:8000" for name in "abc")


@pytest.mark.parametrize(
    ("signal", "subject", "expected"),
    [
        ("completion.rate", A, 4.0),
        ("completion.rate", B, 4.0),
        ("arrival.rate", B, 4.0 + 110 / 300),
        ("error.rate", B, 110 / 300),
        ("error.ratio", A, None),
        ("error.ratio", B, 110 / 1310),
        ("queue.depth", A, 0.0),
        ("queue.depth", B, 40.0),
        ("latency.mean", A, 0.4),
        ("latency.mean", B, 3.0),
        ("latency.mean", C, 0.4),
        ("gpu.sm_clock", "gpu/0@gpus:9400", 1.98e9),
        ("gpu.sm_clock", "gpu/1@gpus:9400", 0.6e9),
        ("gpu.temperature", "gpu/1@gpus:9400", 91.0),
        ("gpu.ecc.uncorrectable", "gpu/0@gpus:9400", None),
        ("gpu.ecc.uncorrectable", "gpu/1@gpus:9400", 0.0),
        ("gpu.ecc.uncorrectable_rate", "gpu/1@gpus:9400", 0.0),
    ],
)
def test_the_judged_window_for_each_replica_and_gpu(
    seen: Evidence, signal: str, subject: str, expected: float | None
) -> None:
    found = value(seen, signal, subject)
    assert found is None if expected is None else found == pytest.approx(expected, rel=1e-6)


def test_a_mark_for_no_value_is_a_gap_in_a_history_too(seen: Evidence) -> None:
    (gap,) = (gap for gap in seen.gaps if gap.subject == "gpu/0@gpus:9400")
    assert "means no value" in gap.reason
    assert {"gpu.ecc.uncorrectable", "gpu.ecc.uncorrectable_rate"} <= set(gap.signals)


def test_a_field_that_is_off_by_default_is_not_exported_and_no_zero(seen: Evidence) -> None:
    (gap,) = (gap for gap in seen.gaps_by_signal["gpu.sm_active"])
    assert "not exported" in gap.reason
    assert value(seen, "gpu.sm_active", "gpu/1@gpus:9400") is None


def test_a_young_target_is_judged_by_its_own_time(seen: Evidence) -> None:
    (rate,) = (one for one in seen.readings if (one.signal, one.subject) == ("completion.rate", C))
    assert rate.value == pytest.approx(2.0, rel=0.1)  # the server draws it out by half a scrape
    assert rate.note == f"observed for only {YOUNG} s"
    assert rate.window == Window(END - YOUNG, END)
    assert value(seen, "arrival.rate", C) is not None


@pytest.mark.parametrize(
    ("signal", "subject", "before", "after"),
    [
        ("latency.p99", B, 0.498, 4.975),
        ("latency.mean", B, 0.4, 3.0),
        ("queue.depth", B, 0.0, 40.0),
        ("gpu.sm_clock", "gpu/1@gpus:9400", 1.98e9, 0.6e9),
        ("latency.p99", A, 0.498, 0.498),
        ("completion.rate", B, 4.0, 4.0),
    ],
)
def test_the_history_turns_where_it_did(seen: Evidence, signal: str, subject: str, before: float, after: float) -> None:
    found = series(seen, signal, subject)
    reach, turn = 2 * HOUR / 60, END - BAD
    assert {round(v, 6) for t, v in zip(found.times, found.values, strict=True) if t <= turn} == {before}
    assert {round(v, 6) for t, v in zip(found.times, found.values, strict=True) if t > turn + reach} == {after}


def test_a_young_targets_history_does_not_begin_with_a_change(real: str) -> None:
    _, evidence = asked(real, since=300, window=60)
    assert not [gap for gap in evidence.gaps if "contain few samples" in gap.reason]
    rates = series(evidence, "completion.rate", C)
    assert rates.times[0] >= END - YOUNG
    assert [round(value, 3) for value in rates.values] == [2.0] * len(rates.values)


def test_too_few_samples_in_the_window_are_reported(real: str) -> None:
    _, evidence = asked(real, window=30)
    (gap,) = (gap for gap in evidence.gaps if "contain few samples" in gap.reason)
    assert "interval is 15 s, so 30 s contain few samples" in gap.reason


def test_a_restart_is_no_negative_rate(real: str) -> None:
    _, evidence = asked(real, until=END - 1700)
    assert value(evidence, "completion.rate", A) == pytest.approx(4.0, rel=0.1)


def test_quantiles_are_those_that_the_server_computes(real: str, seen: Evidence) -> None:
    """One way is the server's `histogram_quantile`, the other its counts per bucket and our own interpolation."""
    ours = {one.subject: one.value for one in derive(seen).readings if one.signal == "latency.p99"}
    rates = "rate(vllm:e2e_request_latency_seconds_bucket[5m])"
    query = {"query": f"histogram_quantile(0.99, {rates})", "time": str(END)}
    said = httpx.get(f"{real}/api/v1/query", params=query).json()["data"]["result"]
    theirs = {f"model/org/llm@{one['metric']['instance']}": float(one["value"][1]) for one in said}
    assert set(ours) == {A, B, C}
    assert ours == {subject: pytest.approx(theirs[subject]) for subject in ours}


def test_only_selected_series_are_queried(real: str) -> None:
    _, evidence = asked(real, select='{job="vllm",instance=~"a.*|c:8000"}')
    assert {one.subject for one in evidence.readings if one.signal != ANSWERING} == {A, C}


def down(evidence: Evidence) -> list[Gap]:
    return [gap for gap in evidence.gaps if "d:8000" in gap.reason]


def test_a_selected_target_that_is_down_is_reported_with_its_time(real: str, seen: Evidence) -> None:
    assert not down(seen), "of a target that nobody chose and that shows nothing we know, nothing is said"
    _, evidence = asked(real, select='{job=~"vllm|gone"}')
    (gap,) = down(evidence)
    assert "could not be scraped since" in gap.reason
    assert gap.subject == "server/d:8000"
    assert "latency.p99" in gap.signals or "latency" in gap.signals


def test_a_window_in_which_nothing_was_kept_is_refused(real: str) -> None:
    server = PrometheusServer(prometheus_endpoint(real), END - 10 * HOUR, END - 9 * HOUR)
    collected = COLLECTOR.collect(CollectRequest(prometheus=server), FakeClock())
    with pytest.raises(Exception, match="has no series of a known dialect"):
        COLLECTOR.parse(collected.artifacts)


def test_a_wrong_pattern_is_reported_with_the_servers_message(real: str) -> None:
    server = PrometheusServer(prometheus_endpoint(real), END - HOUR, END, select=parse_matchers('{job=~"("}'))
    collected = COLLECTOR.collect(CollectRequest(prometheus=server), FakeClock())
    assert not collected.artifacts
    (gap,) = collected.gaps
    assert "status 400" in gap.reason
    assert "error parsing regexp" in gap.reason or "parse error" in gap.reason


def test_a_bundle_gives_the_same_evidence(real: str, tmp_path: Path) -> None:
    collected, live = asked(real)
    save(Bundle(Context("t"), Window(0, 1), collected.artifacts, collected.gaps), tmp_path / "look.tar.zst", "0")
    with opened(tmp_path / "look.tar.zst") as bundle:
        assert COLLECTOR.parse(bundle.artifacts) == live
    raw = [one for one in collected.artifacts if one.name.endswith("growth.json")]
    assert raw
    assert all(json.loads(one.read())["status"] == "success" for one in raw)


def test_more_targets_than_are_read_are_reported(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latdoctor.collectors.promql.query_plan.MAX_TARGETS", 2)
    monkeypatch.setattr(collector, "MAX_TARGETS", 2)
    _, evidence = asked(real)
    assert {one.subject for one in evidence.readings if one.signal != ANSWERING} == {A, B}
    (gap,) = (gap for gap in evidence.gaps if "were not read" in gap.reason)
    assert "2 more targets" in gap.reason
