"""Servers scraped over a window: pages that change, servers that fail, and nobody who waits."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from itertools import count

import pytest

from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.outage import is_outage
from latdoctor.collectors.prometheus import COLLECTOR, scrape
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from tests.collectors.prometheus.serving import FakeClock, page, served


def triton(requests: int, microseconds: int, pending: int) -> bytes:
    return (
        "# TYPE nv_inference_request_success counter\n"
        f'nv_inference_request_success{{model="m",version="1"}} {requests}\n'
        f'nv_inference_request_duration_us{{model="m",version="1"}} {microseconds}\n'
        f'nv_inference_pending_request_count{{model="m",version="1"}} {pending}\n'
    ).encode()


def parsed(collected: CollectResult) -> Evidence:
    groups = dict.fromkeys(artifact.group for artifact in collected.artifacts)
    return Evidence.merge(
        COLLECTOR.parse([one for one in collected.artifacts if one.group == group]) for group in groups
    )


def value(seen: Evidence, signal: str) -> object:
    return next((one.value for one in seen.readings if one.signal == signal), None)


def refused() -> str:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_a_window_gives_rates_means_and_pages_between() -> None:
    clock = FakeClock()

    def now() -> bytes:
        passed = int(clock.time - 1000)
        return triton(100 + 20 * passed, 1_000_000 + 800_000 * passed, passed)

    with served(page(now)) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,), window=10.0), clock)
        seen = parsed(collected)
    assert clock.slept == [1.0] * 10
    assert len(collected.artifacts) == 11
    assert not collected.gaps
    assert value(seen, "completion.rate") == 20.0
    assert value(seen, "latency.mean") == pytest.approx(0.04)
    assert value(seen, "queue.depth") == 5.0
    (depth,) = (one for one in seen.readings if one.signal == "queue.depth")
    assert depth.note == "mean of 11 pages, highest 10"
    assert (depth.window.start, depth.window.end) == (1000.0, 1010.0)
    name = url.removeprefix("http://")
    subjects = {(one.id, one.parent) for one in seen.subjects}
    assert subjects == {(f"server/{name}", None), (f"model/m@{name}", f"server/{name}")}


def test_the_same_artifacts_in_any_order_give_the_same_evidence() -> None:
    clock = FakeClock()
    with served(page(lambda: triton(int(clock.time), 1000 * int(clock.time), 1))) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,), window=3.0), clock)
    assert COLLECTOR.parse(collected.artifacts) == COLLECTOR.parse(tuple(reversed(collected.artifacts)))


@pytest.mark.parametrize(("window", "pages"), [(0.0, 1), (0.5, 2), (2.0, 3), (3600.0, scrape.MAX_PAGES)])
def test_the_number_of_pages_is_bounded(window: float, pages: int) -> None:
    clock = FakeClock()
    with served(page(lambda: triton(1, 1, 0))) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url, url), window=window), clock)
    assert len(collected.artifacts) == pages
    assert clock.time == 1000.0 + window


def test_of_large_pages_only_the_first_and_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "MAX_PAGE_BETWEEN", 50)
    with served(page(lambda: triton(1, 1, 0))) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,), window=10.0), FakeClock())
    assert [artifact.taken_at for artifact in collected.artifacts] == [1000.0, 1010.0]


def test_a_refused_server_is_a_gap_at_once_and_the_others_go_on() -> None:
    clock = FakeClock()
    gone = refused()
    with served(page(lambda: triton(1, 1, 0))) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(gone, url), window=2.0), clock)
    (outage,) = (artifact for artifact in collected.artifacts if is_outage(artifact))
    assert outage.source == f"{gone}/metrics"
    values = {one.signal: one.value for one in COLLECTOR.parse([outage]).readings}
    assert (values["server.answering"], values["server.listening"]) == (0.0, 0.0)
    assert {one.source for one in collected.artifacts if one is not outage} == {f"{url}/metrics"}
    (gap,) = collected.gaps
    assert gap.source == COLLECTOR.name
    assert f"{gone}/metrics cannot be reached" in gap.reason
    assert gap.subject == f"server/{gone.removeprefix('http://')}"
    assert "latency.p99" in gap.signals
    assert gap.next_step


def test_no_wait_if_no_server_answers() -> None:
    clock = FakeClock()
    collected = COLLECTOR.collect(CollectRequest(servers=(refused(),), window=60.0), clock)
    assert clock.slept == []
    assert len(collected.gaps) == 1


@pytest.mark.parametrize(
    ("code", "said"), [(404, "status 404"), (500, "status 500"), (302, "status 302, to http://elsewhere.invalid")]
)
def test_another_status_is_a_gap_and_no_redirect_is_followed(code: int, said: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        if code == 302:
            handler.send_header("Location", "http://user:secret@elsewhere.invalid/metrics?token=secret")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with served(answer) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,)), FakeClock())
    (gap,) = collected.gaps
    assert said in gap.reason
    assert "secret" not in gap.reason
    assert "metrics page" in gap.next_step


@pytest.mark.parametrize("trickle", [False, True])
def test_a_hanging_server_is_abandoned_after_the_timeout(trickle: bool) -> None:
    done = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if trickle:  # each byte comes well within the timeout, and there is no end to them
            handler.send_response(200)
            handler.end_headers()
            try:
                while not done.wait(0.02):
                    handler.wfile.write(b"#")
            except OSError:
                return
        done.wait(20)

    try:
        with served(answer) as url:
            collected = COLLECTOR.collect(CollectRequest(servers=(url,), timeout=0.2), FakeClock())
            done.set()
    finally:
        done.set()
    (gap,) = collected.gaps
    assert "did not answer within 200 ms" in gap.reason


def test_too_large_a_page_is_cut_off_while_it_streams() -> None:
    sent = count()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(10_000):
                handler.wfile.write(b"#" * 10_000)
                next(sent)
        except OSError:
            return

    with served(answer) as url:
        (got,) = scrape.fetch([scrape.parse_target(url)], 5.0, limit=100_000)
    assert got.body is None
    assert "sent more than 100000 bytes" in got.why
    assert next(sent) < 10_000


def test_a_page_that_breaks_off_is_a_gap() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"a 1\n")

    with served(answer) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,)), FakeClock())
    assert "broke off" in collected.gaps[0].reason


def test_a_server_that_dies_in_the_window_leaves_its_first_page() -> None:
    clock = FakeClock()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if clock.time > 1000:
            handler.send_error(503)
        else:
            page(lambda: triton(10, 50_000, 3))(handler)

    with served(answer) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,), window=5.0), clock)
    seen = parsed(collected)
    assert len(collected.artifacts) == 1
    (gap,) = collected.gaps
    assert gap.reason == (
        f"{url}/metrics stopped answering within the window: its last page is from second 0 of the window, "
        "then it answered with status 503"
    )
    assert "completion.rate" in gap.signals
    assert gap.subject is None  # what was read of it before still holds
    assert value(seen, "latency.mean") == 0.005
    assert value(seen, "completion.rate") is None
    assert "until the server stopped answering" in str([one.note for one in seen.readings])


@pytest.mark.parametrize(("down", "stopped"), [((7.0, 99.0), True), ((4.0, 6.0), False)])
def test_a_stopped_server_is_distinguished_from_a_temporary_outage(down: tuple[float, float], stopped: bool) -> None:
    clock = FakeClock()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        passed = clock.time - 1000
        if down[0] <= passed < down[1]:
            handler.send_error(503)
        else:
            page(lambda: triton(100 + 20 * int(passed), 1, 0))(handler)

    with served(answer) as dying, served(page(lambda: triton(1, 1, 0))) as steady:
        collected = COLLECTOR.collect(CollectRequest(servers=(steady, dying), window=10.0), clock)
    seen = parsed(CollectResult(tuple(one for one in collected.artifacts if one.source == f"{dying}/metrics")))
    (gap,) = collected.gaps
    assert ("stopped answering" in gap.reason) is stopped
    assert ("last page is from second 6 of the window" in gap.reason) is stopped
    assert value(seen, "completion.rate") == 20.0  # over the time that it answered
    (rate,) = (one for one in seen.readings if one.signal == "completion.rate")
    assert (rate.window.start, rate.window.end) == (1000.0, 1006.0 if stopped else 1010.0)
    assert ("until the server stopped answering" in rate.note) is stopped
    assert value(seen, "server.answering") == (0.0 if stopped else 1.0)


@pytest.mark.parametrize("excuse", [b"", b"<html><title>Sign in</title></html>"])
def test_a_last_page_that_is_none_is_a_server_that_stopped(excuse: bytes) -> None:
    pages = [_saved_at(number, triton(100 + 20 * number, 1, 0)) for number in range(4)]
    seen = parsed(CollectResult((*pages, _saved_at(4, excuse))))
    assert value(seen, "server.answering") == 0.0
    (rate,) = (one for one in seen.readings if one.signal == "completion.rate")
    assert (rate.value, rate.window.end) == (20.0, 1003.0)
    assert "until the server stopped answering" in rate.note


def test_of_a_last_page_that_breaks_off_nothing_is_taken_for_gone() -> None:
    pages = [_saved_at(number, triton(100 + 20 * number, 1, 0)) for number in range(4)]
    half = triton(180, 1, 0)[:-40]
    seen = parsed(CollectResult((*pages, _saved_at(4, half))))
    assert value(seen, "server.answering") == 1.0
    assert value(seen, "completion.rate") == 20.0
    assert not any("gone" in gap.reason for gap in seen.gaps)
    assert any("the page is truncated there" in gap.reason for gap in seen.gaps)


def _saved_at(number: int, body: bytes) -> Artifact:
    name = f"prometheus/1-s-{number:02d}.prom"
    return Artifact(name, "prometheus", "1-s", "http://127.0.0.1:1/metrics", 1000.0 + number, body)


def test_a_stopped_server_is_reported_before_one_that_never_answered() -> None:
    clock = FakeClock()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        page(lambda: triton(1, 1, 0))(handler) if clock.time == 1000 else handler.send_error(503)

    with served(answer) as dying:
        collected = COLLECTOR.collect(CollectRequest(servers=(refused(), dying), window=2.0), clock)
    assert ["stopped answering" in gap.reason for gap in collected.gaps] == [True, False]


def test_a_server_that_comes_up_late_gives_its_last_page() -> None:
    clock = FakeClock()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if clock.time < 1005:
            handler.send_error(503)
        else:
            page(lambda: triton(10, 50_000, 3))(handler)

    with served(answer) as late, served(page(lambda: triton(1, 1, 0))) as steady:
        collected = COLLECTOR.collect(CollectRequest(servers=(late, steady), window=5.0), clock)
    assert [a.taken_at for a in collected.artifacts if a.source == f"{late}/metrics"] == [1005.0]


def test_a_restart_in_the_window_is_a_gap_and_no_negative_rate() -> None:
    clock = FakeClock()
    with served(page(lambda: triton(500 if clock.time < 1005 else 3, 1, 0))) as url:
        seen = parsed(COLLECTOR.collect(CollectRequest(servers=(url,), window=10.0), clock))
    assert value(seen, "completion.rate") is None
    assert "restarted" in seen.gaps_by_signal["completion.rate"][0].reason


def test_proxies_of_the_environment_are_not_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, refused())
    with served(page(lambda: triton(1, 1, 0))) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,), window=0.0), FakeClock())
    assert len(collected.artifacts) == 1


def test_html_is_refused_when_it_is_read() -> None:
    with served(page(lambda: b"<html>login</html>")) as url:
        collected = COLLECTOR.collect(CollectRequest(servers=(url,), window=0.0), FakeClock())
    with pytest.raises(Exception, match="HTML") as caught:
        parsed(collected)
    assert caught.type.__name__ == "SourceError"


@pytest.mark.parametrize(
    ("given", "url", "name"),
    [
        ("localhost:8002", "http://localhost:8002/metrics", "localhost:8002"),
        ("http://h:1/", "http://h:1/metrics", "h:1"),
        ("https://h/custom/metrics", "https://h/custom/metrics", "h/custom/metrics"),
        ("http://[::1]:9", "http://[::1]:9/metrics", "[::1]:9"),
    ],
)
def test_an_address_is_completed(given: str, url: str, name: str) -> None:
    target = scrape.parse_target(given)
    assert (target.url, target.name) == (url, name)


def test_credentials_and_queries_are_never_shown() -> None:
    target = scrape.parse_target("http://user:secret@h:8000/metrics?token=secret")
    assert "secret" in target.url
    assert "secret" not in target.display + target.name


@pytest.mark.parametrize(
    "given", ["ftp://h/metrics", "http://", "http://h:port/", "file:///etc/passwd", "//user:secret@"]
)
def test_what_is_no_address_is_a_gap(given: str) -> None:
    collected = COLLECTOR.collect(CollectRequest(servers=(given,)), FakeClock())
    assert not collected.artifacts
    assert "is not the address" in collected.gaps[0].reason
    assert "secret" not in collected.gaps[0].reason
