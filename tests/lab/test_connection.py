"""Limits on one client: sizes of heads, silent and half-open connections, answers that it does not read."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from latdoctor.lab.hardened_http_server import ConnectionLimits, HttpServer, allow_files, fitting

PATIENCE = 10.0  # seconds after which a test gives up: nothing is measured with it
SHORT = 0.05
GOOD = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
KEPT = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def small(_: Request) -> Response:
    return Response(b"well")


async def large(_: Request) -> Response:
    return Response(b"a" * 50_000_000)


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def client_address(request: Request) -> Response:
    assert request.client is not None
    return Response(request.client.host)


class Held:
    """What the answers of `/held` wait for, one after the other."""

    release = asyncio.Event()


async def held(_: Request) -> Response:
    """Answers once it is released; one release for each."""
    await Held.release.wait()
    Held.release.clear()
    return Response(b"well")


async def early(_: Request) -> Response:
    """Answers without reading the body."""
    return Response(b"no", 503)


def on_a_server(
    limits: ConnectionLimits, run: Callable[[HttpServer], Awaitable[None]], runner: asyncio.Runner | None = None
) -> None:
    app = Starlette(
        routes=[
            Route("/", small),
            Route("/client", client_address),
            Route("/large", large),
            Route("/held", held),
            Route("/echo", echo, methods=["POST"]),
            Route("/early", early, methods=["POST"]),
        ]
    )

    async def main() -> None:
        Held.release = asyncio.Event()
        listening = HttpServer(app, limits=limits, drain_seconds=1)
        await listening.start()
        async with asyncio.timeout(PATIENCE):
            await run(listening)
        await listening.stop()

    if runner is None:
        asyncio.run(main())
    else:
        runner.run(main())


async def said(listening: HttpServer, *parts: bytes) -> bytes:
    """Everything the server answers to `parts`, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.01)  # a packet of its own
    answer = await reader.read()
    writer.close()
    return answer


HEADS = {
    "one-header": (b"GET / HTTP/1.1\r\nx-a: " + b"a" * 2000 + b"\r\n\r\n", 431),
    "many-headers": (b"GET / HTTP/1.1\r\n" + b"x-a: b\r\n" * 300 + b"\r\n", 431),
    "path": (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\n\r\n", 414),
    "endless-header": (b"GET / HTTP/1.1\r\nx-a: " + b"a" * 100_000, 431),
    "endless-path": (b"GET /" + b"a" * 100_000, 414),
    "no-http": (b"\x00\xff\r\n\r\n", 400),
    "negative-length": (b"POST /echo HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
    "two-lengths": (b"POST /echo HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400),
}


@pytest.mark.parametrize(("sent", "status"), HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("packets", [1, 4])
def test_invalid_head_is_answered_with_json_error(
    sent: bytes, status: int, packets: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(listening: HttpServer) -> None:
        size = -(-len(sent) // packets)
        answer = await said(listening, *(sent[start : start + size] for start in range(0, len(sent), size)))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert set(json.loads(body)) == {"error", "detail"}
        assert (await said(listening, GOOD)).endswith(b"well")

    on_a_server(ConnectionLimits(head_bytes=1000, refusal_seconds=SHORT), run)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("claimed", [b"10.0.0.7", b"10.0.0.7, 127.0.0.1"])
def test_client_address_is_that_of_the_connection(claimed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own switch

    async def run(listening: HttpServer) -> None:
        head = b"GET /client HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-forwarded-for: %s\r\n\r\n" % claimed
        assert (await said(listening, head)).endswith(b"127.0.0.1")

    on_a_server(ConnectionLimits(), run)


def test_an_endless_header_in_many_packets_is_cut_off() -> None:
    async def run(listening: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET / HTTP/1.1\r\nx-a: ")
        answer = asyncio.create_task(reader.readexactly(13))
        while not answer.done():
            writer.write(b"a" * 500)
            await asyncio.sleep(0)
        assert answer.result() == b"HTTP/1.1 431 "
        writer.close()

    on_a_server(ConnectionLimits(head_bytes=1000, refusal_seconds=SHORT), run)


@pytest.mark.parametrize("sent", [[b""], [b"\r\n"], [b"GET / HT"], [KEPT, b"\r\n"], [KEPT, b"GET / HTTP/1.1\r\nx: "]])
def test_silent_client_is_disconnected(sent: list[bytes]) -> None:
    async def run(listening: HttpServer) -> None:
        answer = await said(listening, *sent)
        assert (b"200 OK" in answer) == (KEPT in sent)

    on_a_server(ConnectionLimits(head_seconds=SHORT), run)


def test_a_request_that_takes_its_time_is_not_cut_off_by_the_limit_of_the_head() -> None:
    async def run(listening: HttpServer) -> None:
        answer = await said(
            listening,
            b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 60\r\n\r\n",
            *[b"abcdefghij"] * 6,
        )
        assert answer.endswith(b"abcdefghij" * 6)

    on_a_server(ConnectionLimits(head_seconds=SHORT), run)


def test_a_large_body_is_no_large_head_even_where_it_was_answered_early() -> None:
    async def run(listening: HttpServer) -> None:
        for path, status in (("echo", b"200"), ("early", b"503")):
            head = f"POST /{path} HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n".encode()
            answer = await said(listening, head, *[b"b" * 4000] * 5, GOOD)
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert answer.endswith(b"well")

    on_a_server(ConnectionLimits(head_bytes=1000, refusal_seconds=SHORT), run)


def test_unread_answer_is_dropped_after_the_timeout() -> None:
    async def run(listening: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port, limit=1024)
        writer.write(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        server = listening._server
        while not server.server_state.connections:
            await asyncio.sleep(0)
        while server.server_state.connections:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        assert len(await reader.read()) < 50_000_000

    on_a_server(ConnectionLimits(read_seconds=SHORT), run)


def test_requests_at_once_are_answered_in_turn_up_to_the_bound() -> None:
    async def run(listening: HttpServer) -> None:
        assert (await said(listening, KEPT * 3 + GOOD)).count(b"200 OK") == 4
        answer = await said(listening, KEPT * 100)
        assert answer.count(b"200 OK") == 1 + 8  # the one that is answered, and those that wait

    on_a_server(ConnectionLimits(at_once=8), run)


def test_nothing_is_read_while_requests_wait_for_their_turn() -> None:
    """Each answer let one more packet of requests in: more came in than went out, without end."""

    async def run(listening: HttpServer) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n" * 4)
        connections = listening._server.server_state.connections
        while not (connections and len(next(iter(connections)).pipeline) == 3):  # type: ignore[union-attr]
            await asyncio.sleep(0)
        for left in (2, 1, 0):
            writer.write(KEPT)
            Held.release.set()
            while len(next(iter(connections)).pipeline) != left:  # type: ignore[union-attr]
                await asyncio.sleep(0)
                assert len(next(iter(connections)).pipeline) <= 3  # type: ignore[union-attr]
        writer.transport.abort()

    on_a_server(ConnectionLimits(), run)


def test_a_disconnect_with_pipelined_requests_cancels_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    async def run(listening: HttpServer) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        connections = listening._server.server_state.connections
        while not (connections and len(next(iter(connections)).pipeline) == 2):  # type: ignore[union-attr]
            await asyncio.sleep(0)
        (connection,) = connections
        connection.transport.abort()  # type: ignore[union-attr]  # as where it reads nothing for too long
        while connections:
            await asyncio.sleep(0)
        Held.release.set()
        while listening._server.server_state.tasks:
            await asyncio.sleep(0)
        writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        on_a_server(ConnectionLimits(), run, runner)
    assert capsys.readouterr().err == ""


def test_more_connections_than_the_bound_are_turned_away_until_one_ends() -> None:
    async def run(listening: HttpServer) -> None:
        held = [await asyncio.open_connection("127.0.0.1", listening.port) for _ in range(16)]
        while len(listening._server.server_state.connections) < 16:
            await asyncio.sleep(0)
        answer = await said(listening)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        held.pop()[1].close()
        while len(listening._server.server_state.connections) == 16:
            await asyncio.sleep(0)
        assert (await said(listening, GOOD)).endswith(b"well")
        for _, writer in held:
            writer.close()

    on_a_server(ConnectionLimits(connections=16), run)


def test_silent_and_half_open_connections_do_not_hold_the_end_up() -> None:
    async def run(listening: HttpServer) -> None:
        held: list[Streams] = []
        for sent in (b"", b"GET / HT", KEPT):
            held.append(await asyncio.open_connection("127.0.0.1", listening.port))
            held[-1][1].write(sent)
        await listening.stop()
        for reader, writer in held:
            await reader.read()
            writer.close()

    on_a_server(ConnectionLimits(head_seconds=1000), run)


def test_there_is_a_file_for_each_connection() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        assert fitting(ConnectionLimits()).connections == 512 - 128
        allow_files(600)
        assert fitting(ConnectionLimits()).connections == 600
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
