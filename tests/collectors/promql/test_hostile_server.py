"""A server that refuses, redirects, trickles, floods or lies: a gap with a reason, in time, and no secret told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest, CollectResult, PrometheusServer
from latdoctor.collectors.promql import COLLECTOR, client, query_plan
from latdoctor.collectors.promql.client import AUTH, AUTH_FILE, CA_FILE, prometheus_endpoint
from latdoctor.collectors.promql.label_changes import ROLES as CHANGES
from latdoctor.dialects.promql import parse_matchers
from latdoctor.errors import LatdoctorError, SourceError, UsageError
from latdoctor.evidence.bundle import Artifact
from tests.collectors.prometheus.serving import FakeClock, served

CANARY = "c4n4ry"
ROLES = sorted(CHANGES)  # in one order, so that a failing example is found again
Handle = Callable[[BaseHTTPRequestHandler], None]


def saying(status: int, body: bytes, **headers: str) -> Handle:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def look(url: str, timeout: float = 5.0) -> CollectResult:
    server = PrometheusServer(prometheus_endpoint(url), 1000.0, 4600.0)
    return COLLECTOR.collect(CollectRequest(prometheus=server, timeout=timeout), FakeClock())


def vector(*series: dict[str, object]) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (saying(401, b""), "denied access with status 401"),
        (saying(403, b"no"), "denied access with status 403"),
        (saying(302, b"", Location=f"http://u:{CANARY}@elsewhere/x?t={CANARY}"), "to http://elsewhere/x, which is not"),
        (saying(400, b'{"status":"error","error":"parse error"}'), "status 400: parse error"),
        (saying(422, b'{"status":"error","error":"too many samples"}'), "gave up on a query: too many samples"),
        (saying(404, b"<html>"), "no Prometheus server?"),
        (saying(200, b"<html>"), "a response that is not from a Prometheus server"),
        (saying(200, b'{"status":"error","error":"\\u001b[31mred"}'), "an error: red"),
        (saying(200, b'{"status":"success"}'), "an error: no result"),
        (saying(200, vector({"metric": {}, "value": [1, "x"]})), "a value that is not a number"),
        (saying(200, b"[" * 100_000), "a response that is not from a Prometheus server"),
    ],
)
def test_each_is_one_gap_that_says_why(answer: Handle, said: str) -> None:
    with served(answer) as url:
        collected = look(url)
    assert not collected.artifacts
    (gap,) = collected.gaps
    assert said in gap.reason
    assert "latency" in gap.signals
    assert gap.next_step
    assert CANARY not in str(gap)


def test_no_redirect_is_followed_and_no_credential_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUTH, f"Bearer {CANARY}")
    asked: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        saying(200, vector())(handler)

    with served(elsewhere) as other, served(lambda one: saying(307, b"", Location=other + one.path)(one)) as url:
        assert "not followed" in look(url).gaps[0].reason
    assert not asked


@pytest.mark.parametrize(
    ("text", "header"), [("Bearer abc.def", "Bearer abc.def"), ("Basic user:pass:word\n", "Basic dXNlcjpwYXNzOndvcmQ=")]
)
@pytest.mark.parametrize("way", ["environment", "file", "file named in the environment"])
def test_credentials_come_from_a_file_or_the_environment(
    text: str, header: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    if way == "environment":
        monkeypatch.setenv(AUTH, text)
    elif way != "file":
        monkeypatch.setenv(AUTH_FILE, str(file))
    got: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        got.append(handler.headers["Authorization"])
        saying(200, vector())(handler)

    with served(answer) as url:
        way_in = prometheus_endpoint(url, file if way == "file" else None)
        collected = COLLECTOR.collect(CollectRequest(prometheus=PrometheusServer(way_in, 0.0, 3600.0)), FakeClock())
    assert set(got) == {header}
    secret = header.partition(" ")[2]
    kept = repr(way_in) + repr(collected)
    assert secret not in kept
    assert "abc.def" not in kept


@pytest.mark.parametrize(
    "text", ["", "abc", "Digest x", "Basic user", "Bearer", "Bearer a\nb", "Bearer ä", "Bearer \0"]
)
def test_credentials_that_cannot_be_used_are_refused_unread(text: str, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"{text}{CANARY}" if text.startswith("Bearer ") else text)
    with pytest.raises(UsageError) as caught:
        prometheus_endpoint("http://x", file)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [f"http://u:{CANARY}@h", f"http://{CANARY}@h:1", "ftp://h", "http://", "http://h:99999", f"http://h?t={CANARY}"],
)
def test_an_address_with_a_secret_or_none_at_all_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        prometheus_endpoint(url)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("given_url", "url", "name"),
    [
        ("h:9090", "http://h:9090", "h:9090"),
        ("https://h/prom/", "https://h/prom", "h/prom"),
        ("https://h/prom/api/v1", "https://h/prom", "h/prom"),
        ("http://[::1]:9090", "http://[::1]:9090", "[::1]:9090"),
    ],
)
def test_the_root_of_the_server(given_url: str, url: str, name: str) -> None:
    found = prometheus_endpoint(given_url)
    assert (found.url, found.name) == (url, name)


def test_an_invalid_certificate_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv(CA_FILE, str(tmp_path / "ca.pem"))
    (gap,) = look("https://127.0.0.1:1").gaps
    assert "ca.pem is not a certificate file" in gap.reason


def test_a_flood_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BYTES", 1 << 20)
    with served(saying(200, b" " * (2 << 20))) as url:
        assert "sent more than 1 MiB" in look(url).gaps[0].reason


def test_all_answers_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_TOTAL", 100)
    with served(saying(200, vector() + b" " * 100)) as url:
        assert any("sent more than" in gap.reason for gap in look(url).gaps)


def test_a_hanging_server_is_abandoned() -> None:
    done = threading.Event()
    with served(lambda _: bool(done.wait(20)) and None) as url:
        reasons = [gap.reason for gap in look(url, timeout=0.2).gaps]
        done.set()
    assert reasons
    assert all("did not answer within" in reason or "given up" in reason for reason in reasons)


def test_no_server_listens() -> None:
    (gap,) = look("http://127.0.0.1:1").gaps
    assert "cannot be reached" in gap.reason


def test_warnings_of_the_server_are_gaps() -> None:
    said = b'{"status":"success","warnings":["a store is gone"],"data":{"resultType":"vector","result":[{"metric":'
    said += b'{"__name__":"vllm:num_requests_waiting","instance":"a"},"value":[4600,"1"]}]}}'
    with served(saying(200, said)) as url:
        collected = look(url)
    seen = COLLECTOR.parse(collected.artifacts)
    assert any("a store is gone" in gap.reason for gap in seen.gaps)


@pytest.mark.parametrize(
    "text",
    ["{a}", '{a="b"', '{a=="b"}', '{a="b" c="d"}', "up", '{a="b"} or vector(1)', '{a="\\x"}', '{1a="b"}', "x" * 3000],
)
def test_a_selector_holds_matchers_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"selector|quoted|commas"):
        parse_matchers(text)


def test_a_selector_is_written_anew() -> None:
    assert parse_matchers('{ a = "b" , c=~"d\\"}.*" }') == ('a="b"', 'c=~"d\\"}.*"')
    assert parse_matchers("") == parse_matchers("{}") == ()
    assert parse_matchers('a="b"') == ('a="b"',)


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_an_answer_or_a_typed_error(raw: bytes) -> None:
    for read in (client.parse_result, query_plan.parse_plan):
        with suppress(SourceError):
            read(raw, "x")


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_NUMBER = st.sampled_from(["1", "0.5", "NaN", "+Inf", "-Inf", "1e300", "-3", "9223372036854775794", "x", ""])
_TIME = st.floats(allow_nan=False) | st.sampled_from([1000.0, 4300.0, 4330.0, 4600.0])
_LABELS = st.dictionaries(
    st.sampled_from(
        ["__name__", "instance", "job", "le", "latdoctor_sample", "model_name", "quantile", "gpu", "version"]
    ),
    st.sampled_from(
        [
            *("a", "b", "+Inf", "0.5", "x", "", "vllm:num_requests_waiting", "DCGM_FI_DEV_SM_CLOCK"),
            *("vllm:e2e_request_latency_seconds_bucket", "nv_inference_request_success"),
            *("nv_inference_request_summary_us", "a_build_info", "a_config_hash", "a_config_info"),
            "a_config_last_reload_success_timestamp_seconds",
        ]
    ),
)
_SERIES = st.fixed_dictionaries(
    {"metric": _LABELS},
    optional={"value": st.tuples(_TIME, _NUMBER), "values": st.lists(st.tuples(_TIME, _NUMBER), max_size=6)},
)
_ANSWER = st.lists(_SERIES, max_size=6).map(lambda series: vector(*series)) | _JSON.map(
    lambda x: json.dumps(x).encode()
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["found", "names", "cover", "count", "up", "last", "growth", "level", "curve", *ROLES]),
            _ANSWER,
        )
    )
)
def test_any_answers_in_a_bundle_give_evidence_or_a_typed_error(said: list[tuple[str, bytes]]) -> None:
    known = Artifact("promql/1-x/99.json", "promql", "1-x", "http://x", 4600.0, vector(
        {"metric": {"__name__": "vllm:num_requests_waiting", "instance": "a"}, "value": [4600, "1"]}
    ))  # fmt: skip
    asked = [query_plan.PlannedQuery("found", "x", 4600.0, artifact=known.name)]
    kept = [known]
    for number, (role, raw) in enumerate(said):
        name = f"promql/1-x/{number:02d}.json"
        asked.append(
            query_plan.PlannedQuery(
                role, "x", 4600.0, 1000.0, 60.0, ("x",), "vllm", "model" if role in ROLES else "queue.depth", 1.0, name
            )
        )
        kept.append(Artifact(name, "promql", "1-x", "http://x", 4600.0, raw))
    stated = json.dumps(
        {"since": 1000.0, "until": 4600.0, "window": 300.0, "asked": [_as_dict(one) for one in asked]}
    ).encode()
    kept.append(Artifact("promql/1-x/00-plan.json", "promql", "1-x", "http://x", 4600.0, stated))
    try:
        seen = COLLECTOR.parse(kept)
    except LatdoctorError:
        return
    assert seen == COLLECTOR.parse(list(reversed(kept)))


def _as_dict(asked: query_plan.PlannedQuery) -> dict[str, object]:
    return {name: getattr(asked, name) for name in asked.__struct_fields__}
