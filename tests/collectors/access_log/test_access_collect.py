"""Whole access logs: quantiles and rates, what is left out, clocks that jump, and what must not be claimed."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.logs import collector as logs
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import AT_LEAST, Evidence, Reading, Series

START = 1769827740.0  # 2026-01-31T02:49:00Z


class Clock:
    def now(self) -> float:
        return 1.77e9

    def sleep(self, seconds: float) -> None:
        raise AssertionError("reading files needs no waiting")


def line(went: float, took: object, status: int = 200, path: str = "/v1/predict") -> str:
    at = datetime.datetime.fromtimestamp(went, datetime.UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'10.0.0.7 - - [{at}] "POST {path} HTTP/1.1" {status:03} 5 "-" "x" {took}'


def parsed(*lines: str, own: str = "") -> Evidence:
    found = access_log.log_artifacts("a.log", "a.log", 1.77e9, "\n".join(lines).encode(), own)
    return access_log.READER.parse(found)


def collect(*paths: Path, own: str = "") -> CollectResult:
    return logs.READER.collect(CollectRequest(logs=paths, log_pattern=own), Clock())


def reading(found: Evidence, signal: str, subject: str = "server/a.log") -> Reading | None:
    return next((one for one in found.readings if (one.signal, one.subject) == (signal, subject)), None)


def value(found: Evidence, signal: str, subject: str = "server/a.log") -> object:
    one = reading(found, signal, subject)
    return one.value if one else None


def series(found: Evidence, signal: str) -> Series:
    return next(one for one in found.series if one.signal == signal)


def steady(count: int = 600, rate: float = 10.0, took: str = "0.100") -> list[str]:
    return [line(START + n / rate, took) for n in range(count)]


def test_quantiles_rates_and_errors() -> None:
    rows = [line(START + n / 10, f"{0.001 * (n % 100 + 1):.3f}") for n in range(1000)]
    rows += [line(START + 100, "0.001", status) for status in (500, 503, 429, 0, 404, 499)]
    found = parsed(*rows)
    assert value(found, "latency.p50") == pytest.approx(0.050)
    assert value(found, "latency.p95") == pytest.approx(0.095)
    assert value(found, "latency.p99") == pytest.approx(0.099)
    assert value(found, "latency.mean") == pytest.approx(0.0505)
    assert value(found, "error.ratio") == pytest.approx(4 / 1006)  # nginx writes 000 where nobody answered
    assert value(found, "arrival.rate") == pytest.approx(10, rel=0.05)
    assert value(found, "cancel.rate") == pytest.approx(0.01, rel=0.02)
    (spread,) = found.distributions
    assert spread.count == 1000
    assert spread.total == pytest.approx(50.5)
    noted = reading(found, "latency.p99")
    assert noted is not None
    assert "failed" in noted.note
    assert not found.gaps


def test_each_second_has_its_quantiles() -> None:
    found = parsed(*(line(START + second, f"0.{100 + second}") for second in range(60) for _ in range(10)))
    p99 = series(found, "latency.p99")
    assert p99.times == tuple(START + second + 1 for second in range(60))
    assert p99.values == pytest.approx([0.1 + 0.001 * second for second in range(60)])
    assert series(found, "error.ratio").values == (0.0,) * 60
    assert sum(series(found, "arrival.rate").values) == pytest.approx(590, abs=15)


def test_a_second_without_an_answer_has_no_latency() -> None:
    found = parsed(*(line(START + n, "0.100") for n in (0, 1, 2, 9, 10)))
    assert len(series(found, "latency.p50").times) == 5
    assert 0.0 in series(found, "arrival.rate").values


def test_readings_of_a_long_log_cover_its_end() -> None:
    """A day's P99 would hide ten bad minutes."""
    rows = [line(START + n, "0.100") for n in range(7200)] + [line(START + 7200 + n, "2.000") for n in range(600)]
    found = parsed(*rows)
    assert value(found, "latency.p50") == 2.0
    assert len(series(found, "latency.p50").times) == 7800 // 2  # steps of two seconds
    noted = reading(found, "latency.p50")
    assert noted is not None
    assert "the last 600 s of the log" in noted.note


def test_few_requests_reach_back_until_they_are_enough() -> None:
    found = parsed(*(line(START + 60 * n, "0.100") for n in range(300)))
    one = reading(found, "latency.p99")
    assert one is not None
    assert one.window.seconds == pytest.approx(99 * 60)


def test_too_few_requests_have_no_p99() -> None:
    found = parsed(*(line(START + n, "0.100") for n in range(50)))
    assert value(found, "latency.p95") == 0.1
    assert value(found, "latency.p99") is None


def test_probes_are_no_requests() -> None:
    probes = [line(START + n, "0.001", path=path) for n, path in enumerate(("/health", "/metrics", "/v2/health/ready"))]
    found = parsed(*steady(), *probes)
    assert value(found, "latency.mean") == pytest.approx(0.1)
    only = parsed(*probes)
    assert not only.readings
    assert "latency.p99" in only.gaps_by_signal


def test_how_long_a_refusal_takes_is_no_latency_but_a_timeout_is() -> None:
    refused = parsed(*(line(START + n, "0.001", 503) for n in range(200)))
    assert value(refused, "latency.p99") is None
    assert value(refused, "error.ratio") == 1.0
    assert "none of its" in refused.gaps_by_signal["latency.p99"][0].reason
    timed_out = parsed(*(line(START + n, "30.000", 504) for n in range(200)))
    assert value(timed_out, "latency.p99") == 30.0


def test_whole_seconds_are_only_a_bound() -> None:
    found = parsed(*(f"{int(START) + n} 200 {n % 3}" for n in range(300)), own="{time} {status} {seconds}")
    one = reading(found, "latency.p99")
    assert one is not None
    assert (one.value, one.bound) == (2.0, AT_LEAST)
    assert not found.distributions


def test_a_number_without_a_unit_is_not_guessed_at() -> None:
    found = parsed(*(line(START + n / 10, 84213) for n in range(600)))
    assert not [one for one in found.readings if one.signal.startswith("latency")]
    (gap,) = found.gaps_by_signal["latency.p99"]
    assert "but no unit" in gap.reason
    assert "--log-pattern" in gap.next_step
    assert value(found, "arrival.rate") == pytest.approx(10, rel=0.05)


def test_replicas_are_kept_apart() -> None:
    rows = [
        f'{{"exit":"2026-01-31T02:{49 + n // 60:02}:{n % 60:02}.5Z","seconds":{0.1 + 0.4 * (n % 2)},'
        f'"status":200,"replica":"{n % 2}"}}'
        for n in range(400)
    ]
    found = parsed(*rows)
    assert value(found, "latency.p50", "replica/0@a.log") == pytest.approx(0.1)
    assert value(found, "latency.p50", "replica/1@a.log") == pytest.approx(0.5)
    assert found.parents["replica/1@a.log"] == "server/a.log"


def test_rotated_files_in_any_order_are_one_log() -> None:
    rows = steady()
    turned = parsed(*rows[300:], *rows[:300])
    assert not turned.gaps
    assert value(turned, "arrival.rate") == value(parsed(*rows), "arrival.rate")


def test_a_clock_set_back_is_reported() -> None:
    rows = steady(1200)
    back = [line(START + 60 + n / 10, "0.300") for n in range(300)]  # tells of a time that it told of before
    found = parsed(*rows, *back)
    assert value(found, "latency.p50") == pytest.approx(0.1)
    (gap,) = found.gaps
    assert "only 1200 of 1500" in gap.reason


def test_a_clock_that_leaps_for_a_moment_costs_only_those_lines() -> None:
    rows = steady(1200)
    rows[600] = line(START + 400 * 86400, "0.100")
    found = parsed(*rows)
    assert value(found, "arrival.rate") == pytest.approx(10, rel=0.05)
    assert "only 1199 of 1200" in found.gaps[0].reason


def test_entries_noted_at_the_exit_are_in_order_enough() -> None:
    rows = steady()
    rows.insert(400, line(START + 10, "29.000", 502))  # Apache notes when a request came, and this one took long
    assert not parsed(*rows).gaps


def test_lines_in_disorder_are_sorted() -> None:
    rows = [line(START + n, "0.100") for n in range(600)]
    random.Random(1).shuffle(rows)
    found = parsed(*rows)
    assert value(found, "arrival.rate") == pytest.approx(1.0, rel=0.05)
    assert "unordered" in found.gaps[0].reason


def test_the_same_line_twice_is_one_request_where_it_must_be() -> None:
    row = '{"exit":"2026-01-31T02:49:00.5Z","seconds":0.1,"status":200,"request_id":"a"}'
    other = row.replace('"a"', '"b"')
    found = parsed(row, other, row, other)
    assert "2 lines are duplicates" in found.gaps[0].reason
    assert not parsed(*[line(START, "0.100")] * 5).gaps  # to the second alone they may be five requests


def test_a_huge_line_costs_only_itself() -> None:
    found = parsed(*steady(300), line(START, "0.100", path="/" + "a" * (1 << 20)), *steady(600)[300:])
    assert "1 of its lines" in found.gaps[0].reason
    assert value(found, "latency.p50") == 0.1


def test_a_missing_time_zone_is_noted() -> None:
    found = parsed(*(f"2026-01-31 02:49:{n % 60:02};200;5" for n in range(60)), own="{time};{status};{ms}")
    one = reading(found, "latency.p50")
    assert one is not None
    assert "read as UTC" in one.note


def test_a_log_without_durations_says_what_to_do() -> None:
    found = parsed(*('INFO:     127.0.0.1:5 - "POST /a HTTP/1.1" 200 OK' for _ in range(30)))
    assert value(found, "error.ratio") == 0.0
    assert {"latency.p99"} <= found.gaps_by_signal.keys()
    assert {"arrival.rate"} <= found.gaps_by_signal.keys()


def test_kernel_logs_stay_with_their_collector(tmp_path: Path) -> None:
    access, kernel, mixed = (tmp_path / name for name in ("access.log", "kern.log", "out.log"))
    access.write_text("\n".join(steady()))
    kernel.write_text("[    1.000000] usb 1-1: new device\n")
    mixed.write_text("\n".join([*steady(50), "RuntimeError: CUDA error: out of memory"]))
    brought = collect(access, kernel, mixed)
    assert [one.name for one in brought.artifacts] == [
        "access_log/access.log",
        "logs/kern.log",
        "logs/out.log",
        "access_log/out.log",
    ]
    assert not brought.gaps


def test_a_pattern_goes_into_the_bundle(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    log.write_text("\n".join(f"2026-01-31T02:49:{n % 60:02}Z 200 5" for n in range(60)))
    brought = collect(log, own="{time} {status} {ms}")
    assert [one.name for one in brought.artifacts] == ["access_log/own.log", "access_log/own.log.pattern"]
    assert value(access_log.READER.parse(brought.artifacts), "latency.p50", "server/own.log") == 0.005


def test_a_damaged_bundle_is_refused() -> None:
    with pytest.raises(SourceError, match="no readable request"):
        access_log.READER.parse([Artifact("access_log/a", "access_log", "a", "a", 0.0, b"nothing\n")])
    damaged = access_log.log_artifacts("a", "a", 0.0, b"x\n", "{nothing}")
    with pytest.raises(SourceError, match="its pattern is invalid"):
        access_log.READER.parse(damaged)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(steady(3)), st.binary(max_size=80).map(lambda raw: raw.decode("latin-1"))),
                max_size=40))  # fmt: skip
def test_any_bytes_give_evidence_or_a_typed_error(rows: list[str]) -> None:
    try:
        found = parsed(*rows)
    except SourceError:
        return
    for one in found.series:
        assert list(one.times) == sorted(one.times)
        assert len(one.times) == len(one.values)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 100)), min_size=1, max_size=80))
def test_whatever_the_clock_does_a_series_ascends(rows: list[tuple[float, float]]) -> None:
    found = parsed(*(line(START + at, f"{took:.3f}") for at, took in rows))
    for one in found.series:
        # Two requests may come at the same moment; a second is told once.
        assert list(one.times) == sorted(one.times if one.signal.startswith("request.") else set(one.times))
    quantiles = [value(found, f"latency.{name}") for name in ("p50", "p95", "p99")]
    told = [one for one in quantiles if isinstance(one, float)]
    assert told == sorted(told)


def test_single_requests_are_reported_with_their_stages() -> None:
    lines = [
        f'{{"entry": "2026-01-31T02:00:{n % 60:02d}.{n:06d}Z", "seconds": 0.1, "status": 200, "request_id": "{n}", '
        f'"stages": {{"queue": 0.04, "compute": 0.05}}}}'
        for n in range(60)
    ]
    found = parsed(*lines)
    series = {(one.signal, dict(one.labels).get("stage", "")): one for one in found.series}
    assert set(series["request.latency", ""].values) == {0.1}
    assert set(series["request.stage_time", "queue"].values) == {0.04}
    assert series["request.stage_time", "compute"].times == series["request.latency", ""].times
