"""Whole request logs of servers and proxies: stages, time-outs, failures, and requests between other lines."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors import access_log as access_log_package
from latdoctor.collectors import logs as log_package
from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.access_log import proxy_errors
from latdoctor.collectors.access_log.failure_stats import cut_off
from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.runner import parse_bundle
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.model import Evidence, Window, is_unknown
from tests.collectors.access_log.test_access_collect import Clock, series
from tests.collectors.access_log.test_access_lines import CASES

START = 1769827740.0  # 2026-01-31T02:49:00Z


def at(seconds: float, form: str = "%Y-%m-%dT%H:%M:%S.%fZ") -> str:
    return datetime.datetime.fromtimestamp(START + seconds, datetime.UTC).strftime(form)


def parsed(*lines: str) -> Evidence:
    found = access_log.log_artifacts("a.log", "a.log", START + 86400, "\n".join(lines).encode(), "")
    return access_log.READER.parse(found)


def value(found: Evidence, signal: str, **labels: str) -> object:
    wanted = tuple(labels.items())
    return next((one.value for one in found.readings if one.signal == signal and one.labels == wanted), None)


def tgi(number: int, queue: float, compute: float = 0.5) -> str:
    total, gone = queue + compute + 0.001, number + queue + compute
    return (
        f'{at(gone)}  INFO generate{{parameters=GenerateParameters {{ best_of: None }} total_time="{total:.6f}s" '
        f'validation_time="1ms" queue_time="{queue:.6f}s" inference_time="{compute:.6f}s" time_per_token="25ms" '
        'seed="None"}: text_generation_router::server: router/src/server.rs:422: Success'
    )


def nginx(number: float, took: float, status: int = 200, upstream: str = "", servers: str = "10.0.0.1:80") -> str:
    behind = upstream or f"{took - 0.001:.3f} {status}"
    when = at(number, "%d/%b/%Y:%H:%M:%S +0000")
    return (
        f'10.1.1.1 - - [{when}] "POST /v1/chat HTTP/1.1" {status} 5 "-" "x" 100 {took:.3f} [llm-80] [] {servers} 5 '
        f"{behind} ab12cd34{int(number * 10):08x}"
    )


def test_stages_have_means_shares_and_an_onset() -> None:
    rows = [tgi(n, 0.01) for n in range(120)] + [tgi(120 + n, 4.0) for n in range(120)]
    found = parsed("2026-01-31T02:48:00Z  INFO text_generation_router: router/src/main.rs:317: Connected", *rows)
    assert value(found, "request.count") == 240
    assert value(found, "queue.time.mean") == pytest.approx(2.005)
    assert value(found, "queue.time.p99") == pytest.approx(4.0)
    assert value(found, "compute.time.mean") == pytest.approx(0.5)
    assert value(found, "preprocess.time.mean") == pytest.approx(0.001)
    assert value(found, "tpot.mean") == pytest.approx(0.025)
    assert value(found, "stage.time_share", stage="queue") == pytest.approx(2.005 / 2.506)
    assert value(found, "error.ratio") == 0.0
    waits = series(found, "queue.time.mean")
    assert waits.values[0] == pytest.approx(0.01)
    assert waits.values[-1] == pytest.approx(4.0)
    assert waits.times[-1] > waits.times[0] + 200


def test_failed_requests_of_a_server_without_a_status_count() -> None:
    failed = (
        f"{at(130 + n)} ERROR generate{{parameters=P}}:generate:generate_stream: text_generation_router::infer: "
        "router/src/infer.rs:106: Model is overloaded"
        for n in range(30)
    )
    found = parsed(*(tgi(n, 0.1) for n in range(120)), *failed)
    assert value(found, "error.ratio") == pytest.approx(30 / 150)
    assert value(found, "latency.mean") == pytest.approx(0.601)


def test_a_time_out_shows_as_the_limit_at_which_requests_end() -> None:
    rows = [nginx(n, 20 + n % 7) for n in range(60)]
    rows += [nginx(60 + n, 60.001, 504, "60.000 504") for n in range(40)]
    found = parsed(*rows)
    assert value(found, "timeout.limit") == 60.0
    assert value(found, "timeout.share") == pytest.approx(0.4)
    assert value(found, "request.failure_share", reason="upstream timeout") == pytest.approx(0.4)
    rates = next(one for one in found.series if one.signal == "request.failure_rate")
    assert rates.labels == (("reason", "upstream timeout"),)
    assert rates.values[0] == 0
    assert rates.values[-1] > 0
    assert value(found, "client.timeout_limit") is None
    assert value(found, "gateway.timeout_rate") == pytest.approx(40 / 99, rel=0.02)
    assert value(found, "gateway.reset_rate") is None  # nginx does not say what a 502 was


def test_clients_that_give_up_at_one_moment() -> None:
    rows = [nginx(n, 3) for n in range(60)] + [nginx(60 + n, 30.002 - n % 3 / 1000, 499, "- -") for n in range(10)]
    found = parsed(*rows)
    assert value(found, "client.timeout_limit") == 30.0
    assert value(found, "timeout.limit") is None
    assert value(found, "error.ratio") == 0.0


def test_a_second_server_is_a_retry_and_the_times_add_up() -> None:
    rows = [nginx(n, 1.3, 200, "0.004, 1.2 502, 200", "10.0.0.1:80, 10.0.0.2:80") for n in range(20)]
    found = parsed(*rows, *(nginx(20 + n, 1.3, 200, "1.204 200") for n in range(60)))
    assert value(found, "upstream.retry_share") == pytest.approx(0.25)
    assert value(found, "upstream.time.mean") == pytest.approx(1.204)
    assert value(found, "proxy.time.mean") == pytest.approx(0.096)
    assert value(found, "upstream.error_ratio") == 0.0


def test_the_error_log_of_a_proxy_gives_events_and_no_requests() -> None:
    errors = [
        f"{at(60 + n, '%Y/%m/%d %H:%M:%S')} [error] 31#31: *{n} upstream timed out (110: Operation timed out) while "
        'reading response header from upstream, client: 10.1.1.1, request: "POST /v1/chat HTTP/2.0", upstream: '
        '"http://10.0.0.1:80/v1/chat", host: "x"'
        for n in range(40)
    ]
    rows = [nginx(n, 2) for n in range(60)] + [nginx(60 + n, 60.001, 504, "60.000 504") for n in range(40)]
    found = parsed(*rows, *errors)
    assert value(found, "request.count") == 100
    assert len(found.events) == 40
    assert found.events[0].signal == "log.upstream_error"
    assert found.events[0].fields["reason"] == "upstream timeout"
    assert found.events[0].fields["path"] == "/v1/chat"
    assert found.events[0].time == START + 60
    assert not found.gaps
    assert not access_log.recognise("\n".join([*rows, *errors]).encode()).other  # searched for nothing else
    alone = parsed(*errors)
    assert len(alone.events) == 40
    assert not alone.readings
    assert "error.ratio" in alone.gaps_by_signal


NGINX = '2026/01/31 02:49:00 [error] 31#31: *7 {}, client: 10.1.1.1, request: "POST /v1/chat HTTP/1.1", host: "x"'
ERRORS = [
    (
        NGINX.format("upstream timed out (110: Operation timed out) while connecting to upstream"),
        "upstream unreachable",
    ),
    (NGINX.format("upstream timed out (110: Operation timed out) while reading upstream"), "upstream timeout"),
    (NGINX.format("connect() failed (111: Connection refused) while connecting to upstream"), "upstream unreachable"),
    (NGINX.format("recv() failed (104: Connection reset by peer) while reading upstream"), "upstream reset"),
    (NGINX.format("upstream prematurely closed connection while reading response header"), "upstream reset"),
    (NGINX.format("no live upstreams while connecting to upstream"), "no healthy upstream"),
    (NGINX.format("limiting requests, excess: 5.1 by zone"), "rate limited"),
    (NGINX.format("client prematurely closed connection"), "client closed"),
    ("2026/01/31 02:49:00 [notice] 1#1: start worker processes", None),
    (
        '{"level":"error","ts":1769827740.2,"logger":"http.log.error","msg":"dial tcp 10.0.0.1:80: connect: connection '
        'refused","request":{"method":"POST","uri":"/v1/chat"},"duration":0.001,"status":502}',
        "upstream unreachable",
    ),
    (
        '{"severity":"ERROR","timestamp":"2026-01-31T02:49:00Z","logger":"activator","msg":"error reverse '
        'proxying request; sockstat: sockets: used 8","error":"context deadline exceeded"}',
        "upstream timeout",
    ),
]


@pytest.mark.parametrize(("line", "reason"), ERRORS)
def test_a_line_of_an_error_log_has_a_reason(line: str, reason: str | None) -> None:
    found = proxy_errors.read(line)
    assert found is not None
    assert found.failure == reason
    assert proxy_errors.read('10.1.1.1 - - [31/Jan/2026:02:49:00 +0000] "POST /a HTTP/1.1" 504 5') is None


def test_requests_between_other_lines_are_read_and_the_others_stay_an_application_log(tmp_path: Path) -> None:
    lines = [
        f"time=2026-01-31T02:49:{n % 60:02}.000Z level=INFO source=sched.go:714 msg=step n={n}" for n in range(400)
    ]
    for n in range(5):
        lines.insert(
            60 * n + 7,
            f'[GIN] 2026/01/31 - 02:49:{n:02} | 200 |  {n + 1}.25s |  127.0.0.1 | POST     "/api/chat"',
        )
    path = tmp_path / "ollama.log"
    path.write_text("\n".join(lines))
    known = recognise(path)
    assert known is not None
    assert known.kind is FileKind.LOG
    collected = logs.READER.collect(CollectRequest(logs=(path,)), Clock())
    assert {one.collector for one in collected.artifacts} == {"logs", "access_log"}
    found = parsed(*lines)
    assert value(found, "request.count") == 5
    assert value(found, "latency.p50") == 3.25


def test_what_both_readers_of_a_log_find_counts_once(tmp_path: Path) -> None:
    starting = [f"{at(-60 + n)}  INFO text_generation_launcher: Starting shard {n}" for n in range(40)]
    path = tmp_path / "tgi.log"
    path.write_text("\n".join([*starting, *(tgi(n, 0.1) for n in range(120))]))
    collected = logs.READER.collect(CollectRequest(logs=(path,)), Clock())
    bundle = Bundle(Context("t"), Window(START, START), collected.artifacts)
    found, _ = parse_bundle((log_package.COLLECTOR, access_log_package.COLLECTOR), bundle)
    for signal in ("latency.mean", "latency.p99", "queue.time.mean", "error.ratio"):
        (one,) = (reading for reading in found.readings if reading.signal == signal)
        assert one.origin.artifact.startswith("access_log/")
    assert len([one for one in found.series if one.signal == "latency.p99"]) == 1
    assert len([one for one in found.distributions if one.signal == "latency"]) == 1
    assert ("log.cuda_error", "node/tgi.log") in found.looked


def test_requests_without_a_time_have_that_of_the_lines_before() -> None:
    lines = []
    for n in range(30):
        lines.append(f"2026-01-31 02:49:{2 * n:02},000 INFO engine.py:80 - Running: 3 reqs")
        lines += ['INFO:     10.0.4.2:59919 - "POST /v1/completions HTTP/1.1" 200 OK'] * 4
    lines.append('INFO:     10.0.4.2:59919 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error')
    found = parsed(*lines)
    assert value(found, "request.count") == 121  # identical lines are requests of one connection, not duplicates
    assert value(found, "error.ratio") == pytest.approx(1 / 121)
    assert value(found, "arrival.rate") == pytest.approx(2, rel=0.1)
    assert "latency.p99" in found.gaps_by_signal


def test_a_second_format_gives_only_what_the_first_lacks() -> None:
    lines = []
    for n in range(60):
        lines.append(
            f"{at(n, '%Y-%m-%d %H:%M:%S.500')} 74 kserve.trace requestId: q-{n}, preprocess_ms: 1.5, explain_ms: 0, "
            "predict_ms: 200.0, postprocess_ms: 0.5"
        )
        status = "500 Internal Server Error" if n % 4 == 0 else "200 OK"
        lines.append(
            f'{at(n, "%Y-%m-%d %H:%M:%S.501")} uvicorn.access INFO:     10.4.1.5:0 74 - "POST /v2/m/infer HTTP/1.1" '
            f"{status}"
        )
    found = parsed(*lines)
    assert value(found, "latency.mean") == pytest.approx(0.202)
    assert value(found, "compute.time.mean") == pytest.approx(0.2)
    assert value(found, "error.ratio") == pytest.approx(0.25)
    assert value(found, "request.count") == 60
    assert "error.ratio" not in found.gaps_by_signal


def test_a_log_without_a_status_has_no_error_ratio() -> None:
    found = parsed(
        *(
            f"{at(n)} kserve.trace requestId: q-{n}, preprocess_ms: 1.5, predict_ms: 200.0, postprocess_ms: 0.5"
            for n in range(20)
        )
    )
    assert value(found, "error.ratio") is None
    assert "error.ratio" in found.gaps_by_signal


def test_an_export_that_is_one_json_document() -> None:
    records = [
        {
            "httpRequest": {"latency": "30.000s", "requestMethod": "POST", "requestUrl": "https://x/v1", "status": 502},
            "jsonPayload": {"statusDetails": "backend_timeout"},
            "timestamp": at(n),
        }
        for n in range(30)
    ]
    for text in (
        json.dumps(records, indent=2),
        json.dumps(records),
        "\n".join(json.dumps(one, indent=2) for one in records),
    ):
        found = parsed(text)
        assert value(found, "request.count") == 30
        assert value(found, "error.ratio") == 1.0
        assert value(found, "timeout.limit") == 30.0
        assert value(found, "latency.p50") == 30.0  # whatever its status, a time-out is a latency
        assert parsed(text[: len(text) // 2]).readings  # cut off in the middle


def test_workers_and_replicas_are_subjects_of_their_own() -> None:
    lines = []
    for n in range(40):
        lines += [
            f"INFO {at(n, '%Y-%m-%d %H:%M:%S,500')} proxy 10.0.0.4 q-{n} -- POST /rank 200 130.0ms",
            f"INFO {at(n, '%Y-%m-%d %H:%M:%S,490')} default_Ranker rep{n % 2} q-{n} -- CALL /rank OK 1{n % 2}0.0ms",
        ]
    found = parsed(*lines)
    means = {one.subject: one.value for one in found.readings if one.signal == "latency.mean"}
    assert means == pytest.approx(
        {"server/a.log": 0.13, "replica/default_Ranker#rep0@a.log": 0.1, "replica/default_Ranker#rep1@a.log": 0.11}
    )


def test_a_log_of_probes_between_other_lines_is_no_request_log() -> None:
    lines = [f"{at(n)} INFO loaded shard {n}" for n in range(300)]
    lines.insert(150, 'INFO:     10.0.4.2:59919 - "GET /health HTTP/1.1" 200 OK')
    assert not access_log.recognise("\n".join(lines).encode()).access_log


def test_an_agent_that_probes_is_no_client() -> None:
    probes = [
        f'10.1.1.1 - - [{at(n, "%d/%b/%Y:%H:%M:%S +0000")}] "GET / HTTP/1.1" 200 5 "-" "kube-probe/1.29" 0.001'
        for n in range(50)
    ]
    assert value(parsed(*(nginx(n, 2.0) for n in range(50)), *probes), "request.count") == 50


def apache(unit: float, took: float = 7.0, lines: int = 60) -> list[str]:
    """Overlapping requests with the time at which they came, written when they end."""
    found = [(n + (took if n % 3 else 0.5), n, took if n % 3 else 0.5) for n in range(lines)]
    return [
        f'10.1.1.1 - - [{at(came, "%d/%b/%Y:%H:%M:%S +0000")}] "POST /v1/chat HTTP/1.1" 200 512 {round(seconds / unit)}'
        for _, came, seconds in sorted(found)
    ]


@pytest.mark.parametrize("unit", [1e-6, 1e-3])
def test_the_order_of_the_lines_decides_the_unit_of_bare_numbers(unit: float) -> None:
    found = parsed(*apache(unit))
    assert value(found, "latency.mean") == pytest.approx((7 * 40 + 0.5 * 20) / 60)
    assert any("by the order of its lines" in gap.reason for gap in found.gaps)


def test_bare_numbers_of_lines_in_order_have_no_unit() -> None:
    rows = [f'10.1.1.1 - - [{at(n, "%d/%b/%Y:%H:%M:%S +0000")}] "POST /a HTTP/1.1" 200 512 84213' for n in range(60)]
    found = parsed(*rows)
    assert value(found, "latency.mean") is None
    assert "latency.mean" in found.gaps_by_signal


def test_a_time_without_a_zone_gives_way_to_that_of_the_container_runtime() -> None:
    lines = [
        f'{at(n)} stdout F [GIN] {at(n + 7200, "%Y/%m/%d - %H:%M:%S")} | 200 | 2.5s | 10.0.0.1 | POST "/api/chat"'
        for n in range(20)
    ]
    (latency,) = (one for one in parsed(*lines).readings if one.signal == "latency.mean")
    assert latency.window.start == START
    assert "time zone" not in latency.note


def test_lists_of_models_and_heads_are_no_requests_of_clients() -> None:
    lines = ['[GIN] 2026/01/31 - 02:49:01 | 200 | 2.5s | 127.0.0.1 | POST     "/api/chat"'] * 20
    for method, path in (("GET", "/api/tags"), ("POST", "/api/show"), ("HEAD", "/"), ("GET", "/v1/models")):
        lines += [f'[GIN] 2026/01/31 - 02:49:02 | 200 | 20.1µs | 127.0.0.1 | {method:8} "{path}"'] * 20
    found = parsed(*lines)
    assert value(found, "request.count") == 20
    assert value(found, "latency.p50") == 2.5


@pytest.mark.parametrize("case", [case for case in CASES if not case.get("none")], ids=lambda case: case["line"][:60])
def test_a_file_of_each_form_is_known_as_a_log(case: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    path.write_text("\n".join([str(case["line"])] * 12))
    known = recognise(path)
    assert known is not None
    assert known.kind is FileKind.LOG


@pytest.mark.parametrize(
    ("durations", "limit"),
    [
        ([60.0, 60.001, 59.999, 60.02], 60),
        ([15.0, 15.001, 15.3, 15.6, 15.9], None),
        ([0.003, 0.001, 0.002], None),
        ([0.5, 0.501, 0.502], 0.5),
        ([300.2, 300.4, 300.1], 300),
        ([60.0, 60.001], None),
        ([30.0, 30.001, 30.002, 4.1, 7.7, 9.3, 2.2, 8.9], None),
        ([], None),
    ],
)
def test_the_limit_is_where_most_that_failed_end(durations: list[float], limit: float | None) -> None:
    found = cut_off(durations)
    assert (found[0] if found else None) == limit


LINES = [case["line"] for case in CASES]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 400), st.binary(max_size=4)), min_size=1, max_size=30))
def test_any_mixture_of_damaged_lines_is_read_or_refused(rows: list[tuple[str, int, bytes]]) -> None:
    content = b"\n".join(line.encode()[:place] + put + line.encode()[place + len(put) :] for line, place, put in rows)
    access_log.recognise(content)
    try:
        found = access_log.READER.parse(access_log.log_artifacts("a.log", "a.log", START, content, ""))
    except SourceError:
        return
    for one in found.readings:
        assert is_unknown(one.value) or float(one.value) >= 0


def test_a_log_sorted_by_the_arrival_of_its_requests_is_read_whole() -> None:
    durations = [2100, 30, 22000, 15, 14000, 40, 9000, 12, 30000, 20]
    line = (
        '[2026-01-31T02:49:{number:02d}.000Z] "POST /v1/completions HTTP/1.1" 200 - via_upstream - "-" 9 20 {took} '
        '{took} "-" "client" "id-{number}" "llm.prod" "10.1.2.31:8000"'
    )
    found = parsed(*(line.format(number=number, took=took) for number, took in enumerate(durations)))
    assert value(found, "latency.mean") == pytest.approx(sum(durations) / len(durations) / 1000)


def knative(status: int, latency: str) -> str:
    request = {"requestMethod": "POST", "requestUrl": "/v1/m", "status": status, "latency": latency, "protocol": "x"}
    return json.dumps({"httpRequest": request})


def test_requests_without_a_time_count_although_other_lines_have_one() -> None:
    error = {"logger": "queueproxy", "timestamp": at(0), "message": "error reverse proxying request", "error": "EOF"}
    lines = [knative(200, "0.5s"), knative(503, ""), json.dumps(error), knative(504, "300.01s"), knative(200, "0.7s")]
    found = parsed(*lines)
    assert value(found, "request.count") == 4
    assert value(found, "error.ratio") == pytest.approx(0.5)
    assert value(found, "request.failure_share", reason="upstream timeout") == pytest.approx(0.25)


def test_a_response_that_broke_off_is_a_failure_and_one_that_the_client_left_is_none() -> None:
    line = '10.0.1.2:{port} [31/Jan/2026:02:49:00.000] a b/c 0/0/1/9/{total} 200 9 - - {state} 1/1/1/1/0 0/0 "G /a"'
    states = ["--", "--", "sD", "SD", "cD", "CD"]
    found = parsed(*(line.format(port=port, total=1000 + port, state=one) for port, one in enumerate(states)))
    assert value(found, "request.count") == 6
    assert value(found, "error.ratio") == pytest.approx(2 / 6)
    assert value(found, "request.failure_share", reason="client timeout") == pytest.approx(1 / 6)
    assert value(found, "latency.mean") == pytest.approx((1.0 + 1.001 + 1.002) / 3)  # two answers and a time-out


def test_few_requests_or_hardly_any_time_have_no_rate() -> None:
    few = parsed(*(nginx(n, 0.5) for n in range(9)))
    assert value(few, "request.count") == 9
    assert value(few, "arrival.rate") is None
    assert value(few, "completion.rate") is None
    burst = parsed(*(f"{at(n / 1e4)} status=200 duration=1ms path=/a method=POST" for n in range(50)))
    assert value(burst, "request.count") == 50
    assert value(burst, "arrival.rate") is None
    assert value(parsed(*(nginx(n, 0.5) for n in range(20))), "arrival.rate") == pytest.approx(1)
