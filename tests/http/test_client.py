"""What the exchange itself promises, beyond what tests/remediation/test_admin_api.py holds it to."""

from __future__ import annotations

import gzip
import logging
import socket
import ssl
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

from latdoctor.background import run_concurrently
from latdoctor.errors import OperationError
from latdoctor.http.client import HttpClient, HttpRequest, HttpResponse, Secret, redact_secrets, send_request
from latdoctor.http.failure import FailureCode, RequestFailure
from tests.http.stub_server import Serve, answering, dripping, each, hangs, serving
from tests.remediation.actions.lossy_proxy import PATIENCE, whole

CANARY = "canary-in-the-mine-0123456789"


def post(
    url: str, *, seconds: float = PATIENCE, authorities: Path | None = None, place: str = ""
) -> HttpResponse | RequestFailure:
    request = HttpRequest("POST", url, {"X-Secret": CANARY}, CANARY.encode(), authorities=authorities)
    return send_request(request, seconds, (lambda _: place) if place else None)


def test_nothing_of_a_request_is_shown_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(answering(403, b"no")) as server:
        url = f"{server.url}/{CANARY}?{CANARY}"
        came = post(url)
        assert CANARY.encode() in server.seen[0].split(b"\r\n")[0]
    assert isinstance(came, HttpResponse)
    request = HttpRequest("POST", url, {"X": CANARY}, CANARY.encode())
    assert CANARY not in repr(request) + repr(came) + caplog.text


def test_an_error_of_the_place_brings_no_frame_that_holds_the_address() -> None:
    def nowhere(url: str) -> str:
        try:
            raise ValueError(url)
        except ValueError as error:
            raise OperationError("not there") from error

    with pytest.raises(OperationError, match="not there") as raised:
        send_request(HttpRequest("POST", f"http://127.0.0.1:9/{CANARY}", {}), PATIENCE, nowhere)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    trace = raised.value.__traceback__
    while trace is not None:
        if "/latdoctor/" in trace.tb_frame.f_code.co_filename:
            assert CANARY not in repr(trace.tb_frame.f_locals)
        trace = trace.tb_next


BEGUN: dict[str, Serve] = {
    "silent": hangs,
    "half an answer": lambda client, _: client.sendall(b"HTTP/1.1 2"),
    "hangs up": lambda client, _: None,
    "drips": dripping(b"HTTP/1.1 200 OK\r\nx: "),
}


@pytest.mark.parametrize("serve", BEGUN.values(), ids=BEGUN.keys())
def test_what_was_sent_without_an_answer_may_have_been_done(serve: Serve) -> None:
    with serving(serve) as server:
        lost = post(server.url, seconds=0.3)
    assert isinstance(lost, RequestFailure)
    assert lost.begun


def test_what_nobody_was_there_for_was_not_done() -> None:
    with serving(hangs) as server:
        url = server.url
    lost = post(url)
    assert isinstance(lost, RequestFailure)
    assert lost.code is FailureCode.REFUSED
    assert not lost.begun


def test_a_name_that_takes_too_long_to_look_up_was_not_asked() -> None:
    go_on = threading.Event()

    def slow(_: str) -> str:
        go_on.wait(PATIENCE)
        return "127.0.0.1"

    with serving(answering(200)) as server:
        lost = send_request(HttpRequest("POST", server.url, {}), 0.05, slow)
        go_on.set()
        for thread in [one for one in threading.enumerate() if one.name == "latdoctor-http"]:
            thread.join(PATIENCE)
        assert isinstance(lost, RequestFailure)
        assert not lost.begun
        assert server.seen == []


def test_of_an_answer_only_what_is_asked_for_is_kept() -> None:
    with serving(answering(429, b"slow down", "retry-after: 7", 'etag: "a"', "set-cookie: x=y")) as server:
        came = post(server.url)
    assert isinstance(came, HttpResponse)
    assert (came.status, came.body, came.headers) == (429, b"slow down", {"retry-after": "7", "etag": '"a"'})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for `receiver.test` that trusts itself, and a server's context with it."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "ca.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=receiver.test"]
    made += ["-addext", "subjectAltName=DNS:receiver.test", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not there to make a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def test_tls_is_proved_by_the_name_and_not_by_the_address(authority: tuple[Path, ssl.SSLContext]) -> None:
    trusted, context = authority
    with serving(answering(200), context) as server:
        good = post(f"https://receiver.test:{server.port}/", authorities=trusted, place="127.0.0.1")
        other = post(f"https://other.test:{server.port}/", authorities=trusted, place="127.0.0.1")
        unknown = post(f"https://receiver.test:{server.port}/", place="127.0.0.1")
        assert len(server.seen) == 1
    assert isinstance(good, HttpResponse)
    for lost in (other, unknown):
        assert isinstance(lost, RequestFailure)
        assert lost.code is FailureCode.CERTIFICATE
        assert "certificate" in lost.why
        assert not lost.begun


def test_a_file_without_certificates_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    lost = post("https://127.0.0.1:9/", authorities=tmp_path / "empty.pem")
    assert isinstance(lost, RequestFailure)
    assert lost.code is FailureCode.CA_FILE
    assert not lost.begun


def test_secrets_are_taken_out_the_longest_first() -> None:
    secrets = [Secret("abc"), Secret(), Secret("abcdef")]
    assert redact_secrets("x abcdef y a\u200bbc z", secrets) == "x … y … z"


def _gunzipped(client: socket.socket, _: threading.Event) -> None:
    body = gzip.compress(b"a 1\n")
    client.sendall(f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


OUTCOMES: dict[str, tuple[Serve, FailureCode]] = {
    "silent": (hangs, FailureCode.TIMEOUT),
    "not HTTP": (lambda client, _: client.sendall(b"SSH-2.0-x\r\n"), FailureCode.PROTOCOL),
    "half a body": (
        lambda client, _: client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"),
        FailureCode.PROTOCOL,
    ),
    "too large": (answering(200, b"x" * 101), FailureCode.TOO_LARGE),
    "elsewhere": (answering(302, b"", "location: http://127.0.0.1:9/"), FailureCode.REDIRECT),
    "not found": (answering(404, b"no"), FailureCode.STATUS),
    "compressed": (_gunzipped, FailureCode.PROTOCOL),
}


@pytest.mark.parametrize(("serve", "code"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_each_failure_has_a_code(serve: Serve, code: FailureCode) -> None:
    with serving(serve) as server:
        came = send_request(HttpRequest("GET", server.url, {}, reads=True, limit=100), 0.3)
    assert (came.code if isinstance(came, RequestFailure) else came.failure) is code


def test_a_name_without_an_address_is_a_dns_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    lost = send_request(HttpRequest("GET", "http://nowhere.test/", {}), PATIENCE)
    assert isinstance(lost, RequestFailure)
    assert (lost.code, lost.why) == (FailureCode.DNS, "cannot be resolved (Name or service not known)")
    assert lost.next_step


def test_compressed_pages_are_read_if_that_is_permitted() -> None:
    with serving(_gunzipped) as server:
        came = send_request(HttpRequest("GET", server.url, {}, reads=True, decompress=True), PATIENCE)
    assert isinstance(came, HttpResponse)
    assert (came.body, came.framed, came.failure) == (b"a 1\n", True, None)


def test_proxies_of_the_environment_are_used_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    request = HttpRequest("GET", "http://behind.test/x", {}, reads=True)
    with serving(answering(200, b"by the proxy")) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        with HttpClient(environment_proxies=True) as client:
            came = client.send(request, PATIENCE)
            monkeypatch.setenv("no_proxy", "behind.test")
            around = client.send(request, 0.05)
        direct = send_request(request, 0.05)
    assert isinstance(came, HttpResponse)
    assert came.body == b"by the proxy"
    assert isinstance(around, RequestFailure)
    assert isinstance(direct, RequestFailure)
    assert len(proxy.seen) == 1


def test_threads_share_connections() -> None:
    with serving(answering(200, b"x")) as server, HttpClient() as client:
        calls = [partial(client.send, HttpRequest("GET", server.url, {}, reads=True), PATIENCE) for _ in range(9)]
        came = list(run_concurrently(calls, 3, "t"))
        assert [one.body if isinstance(one, HttpResponse) else one for one in came] == [b"x"] * 9


def answer_once(client: socket.socket, _: threading.Event) -> None:
    """Answer, keep the connection open, and close it when the next request has arrived."""
    client.sendall(b"HTTP/1.1 200 Said\r\ncontent-length: 1\r\n\r\nx")
    whole(client)


@pytest.mark.parametrize(("method", "repeated"), [("GET", True), ("POST", False)])
def test_a_request_lost_with_an_idle_connection_is_sent_again_if_it_is_safe(method: str, repeated: bool) -> None:
    with serving(each(answer_once, answering(200, b"y"))) as server, HttpClient() as client:
        first, second = (client.send(HttpRequest(method, server.url, {}, reads=True), PATIENCE) for _ in range(2))
    assert isinstance(first, HttpResponse)
    assert isinstance(second, HttpResponse) == repeated
    assert len(server.seen) == 1 + repeated
