"""Damaged results and exports: a gap or a refusal, no other error, in bounded time; and one screen for each sample."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from latdoctor.collectors.documents.reader import parse
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, is_unknown
from tests.cli.running import run

FORMATS = (
    "ab", "aiperf*", "genai-perf*", "grafana*", "http-summary", "jaeger-traces", "k6*", "locust*", "mlperf-loadgen",
    "oha-json", "otlp-*", "perf-analyzer*", "prometheus-api", "serving-benchmark*", "tensorboard*", "triton-*",
    "trtllm*", "vegeta*", "wrk", "zipkin-traces",
)  # fmt: skip
CASES = sorted(path for name in FORMATS for path in (Path(__file__).parent / "cases").glob(f"{name}/*.txt"))
AT = 1_770_000_000.0
PUT = [b"", b"-", b"9" * 30, b"null", b"NaN", b"[", b'"', b",", b"\n\n", b"1e999", b"\xff"]


def read(content: bytes) -> Evidence:
    try:
        return parse([Artifact("documents/x.txt", "documents", "x", "x.txt", AT, content)])
    except SourceError:
        return Evidence()


def check(found: Evidence) -> None:
    for one in found.readings:
        assert one.signal in catalogue(), one
        assert isinstance(one.value, str) or (not is_unknown(one.value) and one.value >= -1e-9) or one.labels, one
    for series in found.series:
        assert len(series.times) == len(series.values)
        assert list(series.times) == sorted(series.times), series.signal
    assert not found.looked


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_or_changed_result_is_read_or_refused(path: Path, data: st.DataObject) -> None:
    content = path.read_bytes()[:20_000]
    cut = content[: data.draw(st.integers(0, len(content)))]
    check(read(cut))
    position = data.draw(st.integers(0, max(0, len(content) - 1)))
    put = data.draw(
        st.sampled_from([b"", b"-", b"9" * 30, b"null", b"NaN", b"[", b'"', b",", b"\n\n", b"1e999", b"\xff"])
    )
    taken = data.draw(st.integers(0, 12))
    check(read(content[:position] + put + content[position + taken :]))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_lines_in_another_order_are_read_or_refused(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    check(read(b"\n".join(reversed(lines))))
    check(read(b"\n".join(lines[::2])))
    check(read(b"\r\n".join(lines)))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_answer_to_each_result_fits_one_screen(path: Path) -> None:
    outcome = run(["diagnose", str(path), "--slo", "500ms"])
    assert "Traceback" not in outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) <= 24
    assert all(cell_len(line) <= 80 for line in lines)
    signals = set(re.findall(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+", outcome.out)) & set(catalogue())
    assert not signals


def test_an_infinite_value_of_a_panel_is_unknown() -> None:
    lines = [
        "Time,queue depth",
        *(f"2026-03-02 10:0{minute}:00,{value}" for minute, value in enumerate(("4", "1e999", "6"))),
    ]
    found = read("\n".join(lines).encode())
    assert {one.signal: one.values for one in found.series} == {"queue.depth": (4.0, 6.0)}
