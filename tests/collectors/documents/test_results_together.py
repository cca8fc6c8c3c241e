"""Results, statistics and traces given together: compared, subtracted, joined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from latdoctor.collectors.documents.reader import parse
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.gap_code import GapCode
from tests.cli.running import run

AT = 1_770_000_000.0


def read(*texts: object) -> Evidence:
    contents = [text if isinstance(text, str) else json.dumps(text) for text in texts]
    return parse(
        [
            Artifact(f"documents/{number}.json", "documents", "g", f"{number}.json", AT, content.encode())
            for number, content in enumerate(contents)
        ]
    )


def values(found: Evidence) -> dict[str, object]:
    return {one.signal: one.value for one in found.readings if not one.labels}


def shares(found: Evidence, signal: str) -> dict[str, float]:
    readings = [one for one in found.readings if one.signal == signal]
    return {dict(one.labels)["stage"]: round(float(one.value), 4) for one in readings}


def statistics(success: int, queue_ms: int, last: int, executions: int) -> object:
    counted = {"count": success, "ns": success * 100_000_000}
    return {
        "model_stats": [
            {
                "name": "bert",
                "version": "1",
                "last_inference": last,
                "inference_count": success,
                "execution_count": executions,
                "inference_stats": {
                    "success": counted,
                    "fail": {"count": 0, "ns": 0},
                    "queue": {"count": success, "ns": queue_ms * 1_000_000},
                    "compute_infer": {"count": success, "ns": 1_000_000 * success},
                },
                "batch_stats": [{"batch_size": 4, "compute_infer": {"count": executions, "ns": 5}}],
            }
        ]
    }


def test_two_statistics_of_triton_are_read_as_their_difference_in_either_order() -> None:
    first, last = statistics(1000, 1000, 1_770_000_000_000, 250), statistics(1400, 21_000, 1_770_000_020_000, 350)
    for found in (read(first, last), read(last, first)):
        known = values(found)
        assert known["queue.time.mean"] == pytest.approx(0.05)
        assert known["completion.rate"] == pytest.approx(20)
        assert found.distributions[0].count == 100


def test_counts_of_triton_that_fell_are_a_gap() -> None:
    found = read(statistics(1000, 1000, 1_770_000_000_000, 250), statistics(10, 10, 1_770_000_020_000, 3))
    assert GapCode.INCONSISTENT in {gap.code for gap in found.gaps}
    assert not values(found)


def query(name: str, value: float) -> object:
    labels = {"__name__": name, "instance": "a:8000", "job": "j", "model_name": "m"}
    return {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": labels, "value": [AT, str(value)]}]},
    }


def test_answers_of_several_queries_are_one_server() -> None:
    found = read(query("vllm:num_requests_waiting", 9), query("vllm:kv_cache_usage_perc", 0.5))
    assert values(found) == {"queue.depth": 9, "kv.usage": 0.5}
    assert {one.subject for one in found.readings} == {"model/m@a:8000"}


def test_an_answer_that_is_an_error_leaves_the_other_readable() -> None:
    found = read(query("vllm:num_requests_waiting", 9), {"status": "error", "errorType": "timeout", "error": "late"})
    assert values(found) == {"queue.depth": 9}
    assert GapCode.UNREADABLE in {gap.code for gap in found.gaps}


def span(service: str, number: int, begin: float, end: float, parent: str = "") -> object:
    nanoseconds = [str(int((AT + moment) * 1e9)) for moment in (begin, end)]
    one = {
        "traceId": f"t{number}",
        "spanId": f"{service}{number}",
        "parentSpanId": f"{parent}{number}" if parent else "",
        "name": "handle",
        "startTimeUnixNano": nanoseconds[0],
        "endTimeUnixNano": nanoseconds[1],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resource": resource, "scopeSpans": [{"spans": [one]}]}


def test_services_of_one_trace_may_be_in_files_of_their_own() -> None:
    front = {"resourceSpans": [span("front", number, 10 * number, 10 * number + 4) for number in range(3)]}
    model = {"resourceSpans": [span("model", number, 10 * number + 1, 10 * number + 4, "front") for number in range(3)]}
    assert shares(read(front, model), "stage.time_share") == {"model handle": 0.75, "none": 0.25}


def test_the_stage_that_owns_the_slow_requests_is_not_the_one_that_owns_most_of_the_time() -> None:
    front, model = [], []
    for number in range(60):
        slow = 5.0 if number % 10 == 9 else 0.0
        begin = 100.0 * number
        front.append(span("front", number, begin, begin + 4 + slow))
        model.append(span("model", number, begin, begin + 3, "front"))
        model.append(span("cache", number, begin + 3, begin + 4 + slow, "front"))
    found = read({"resourceSpans": [*front, *model]})
    assert max(shares(found, "stage.time_share").items(), key=lambda one: one[1])[0] == "model handle"
    assert shares(found, "tail.share") == {"cache handle": 1.0, "model handle": 0.0, "other": 0.0}


WRK = """Running 1m test @ http://127.0.0.1:8000/v1
  2 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   {mean}ms   10.00ms 900.00ms   71.00%
  Latency Distribution
     50%  {mean}.00ms
     99%  {tail}.00ms
  6000 requests in 1.00m, 3.90MB read
Requests/sec:    100.00
"""


def test_two_results_are_compared_and_the_slo_is_judged(tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text(WRK.format(mean=100, tail=200))
    (tmp_path / "after.txt").write_text(WRK.format(mean=300, tail=800))
    out = run(["diagnose", str(tmp_path / "before.txt"), str(tmp_path / "after.txt"), "--slo", "500ms"])
    assert out.code == 3
    assert "SLOWER P99 200 ms → 800 ms at the client (+300 %)" in " ".join(out.out.split())
    alone = run(["diagnose", str(tmp_path / "before.txt"), "--slo", "500ms", "-o", "json"])
    checks = {one["id"]: one["status"] for one in json.loads(alone.out)["checks"]}
    assert checks["client-p99-over-slo"] == "clear"


def test_a_p99_of_few_requests_says_so(tmp_path: Path) -> None:
    block = "============ Serving Benchmark Result ============\nSuccessful requests: 30\nP99 E2EL (ms): 1870.0\n"
    (tmp_path / "bench.txt").write_text(block)
    out = run(["diagnose", str(tmp_path / "bench.txt")]).out
    assert "P99 1.87 s (of 30 requests) at the client" in out
