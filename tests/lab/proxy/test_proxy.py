"""The proxy between real sockets on loopback. Delays are on a clock that jumps: nothing waits for the wall clock."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.tcp_proxy import HELD_BYTES, READ_BYTES, FaultProxy, control
from latdoctor.lab.faults.toxics import Bandwidth, Blackhole, Latency, Reset, SlowClose, Toxic
from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server.intent_request import MAX_BODY_BYTES

DEADLINE = 20.0  # for a test that hangs; nothing is measured by it


class JumpingClock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._moved = asyncio.Event()
        self._asleep: list[float] = []
        self._slept = asyncio.Event()

    def now(self) -> float:
        return self.seconds

    async def wait(self, stirred: asyncio.Event, until: float | None) -> None:
        if until is not None:
            self._asleep.append(until)
            self._slept.set()
        try:
            while not stirred.is_set() and (until is None or self.seconds < until):
                waits = [asyncio.create_task(event.wait()) for event in (stirred, self._moved)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for one in waits:
                        one.cancel()
        finally:
            if until is not None:
                self._asleep.remove(until)

    async def asleep(self, until: float) -> None:
        """Returns once a line waits for that moment."""
        while not any(abs(one - until) < 1e-6 for one in self._asleep):
            self._slept.clear()
            await self._slept.wait()

    def jump(self, to: float) -> None:
        self.seconds = to
        self._moved.set()
        self._moved = asyncio.Event()


class Upstream:
    """Echoes what it is sent, and keeps it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.ended = asyncio.Event()
        self.broken = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.got += data
                writer.write(data)
                await writer.drain()
            self.ended.set()
        except ConnectionError:
            self.broken.set()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def proxied(clock: JumpingClock | None = None) -> AsyncIterator[tuple[FaultProxy, Upstream]]:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    proxy = FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1], clock=clock, seed=3)
    await proxy.start()
    try:
        yield proxy, upstream
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await test()

    asyncio.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    """Lets the loop turn until it is so; the test's deadline bounds it."""
    while not holds():
        await asyncio.sleep(0)


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def test_without_toxics_everything_passes_both_ways_and_the_end_too() -> None:
    async def test() -> None:
        async with proxied() as (proxy, upstream):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            sent = bytes(range(256)) * 4096  # 1 MiB
            writer.write(sent)
            writer.write_eof()
            assert await reader.read(-1) == sent
            assert upstream.got == sent
            await end(writer)
            await eventually(lambda: proxy.traffic().open == 0)
            traffic = proxy.traffic()
            assert (traffic.bytes_up, traffic.bytes_down, traffic.connections, traffic.resets) == (
                len(sent),
                len(sent),
                1,
                0,
            )

    run(test)


def test_a_delay_holds_the_answer_back_for_just_its_time() -> None:
    async def test() -> None:
        clock = JumpingClock()
        async with proxied(clock) as (proxy, upstream):
            proxy.toxics.add(Toxic("slow", Latency(3), 60))
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            await clock.asleep(3)
            assert (upstream.got, proxy.traffic().bytes_down) == (b"ping", 0)  # the way up is free
            clock.jump(2.999)
            await clock.asleep(3)
            assert proxy.traffic().bytes_down == 0
            clock.jump(3)
            assert await reader.readexactly(4) == b"ping"
            await end(writer)

    run(test)


@pytest.mark.parametrize("goes", ["removed", "expired"])
def test_a_blackhole_holds_until_it_goes(goes: str) -> None:
    async def test() -> None:
        clock = JumpingClock()
        async with proxied(clock) as (proxy, upstream):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            proxy.toxics.add(Toxic("hole", Blackhole(), 40, stream="up"))
            writer.write(b"ping")
            await clock.asleep(40)
            assert upstream.got == b""
            if goes == "removed":
                assert proxy.toxics.remove("hole")
            else:
                clock.jump(40)
            assert await reader.readexactly(4) == b"ping"
            assert proxy.toxics.active() == ()
            await end(writer)

    run(test)


def test_a_limited_line_passes_piece_by_piece() -> None:
    async def test() -> None:
        clock = JumpingClock()
        async with proxied(clock) as (proxy, upstream):
            proxy.toxics.add(Toxic("narrow", Bandwidth(1000), 60, stream="up"))
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"x" * 50)
            for piece in range(2):  # of 20 ms, so of 20 bytes
                await clock.asleep(0.02 * (piece + 1))
                assert proxy.traffic().bytes_up == 20 * piece
                clock.jump(0.02 * (piece + 1) + 1e-9)
            await eventually(lambda: len(upstream.got) == 40)
            clock.jump(1)
            await eventually(lambda: len(upstream.got) == 50)
            await end(writer)

    run(test)


def test_a_reset_breaks_open_connections_on_both_sides_at_once() -> None:
    async def test() -> None:
        async with proxied() as (proxy, upstream):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            proxy.toxics.add(Toxic("cut", Reset(), 60))
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            await upstream.broken.wait()
            await eventually(lambda: proxy.traffic().open == 0)
            assert proxy.traffic().resets == 1
            await end(writer)

    run(test)


def test_a_reset_after_so_many_bytes_lets_just_those_through() -> None:
    async def test() -> None:
        async with proxied() as (proxy, upstream):
            proxy.toxics.add(Toxic("cut", Reset(after_bytes=6), 60, stream="up"))
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"0123456789")
            await upstream.broken.wait()
            assert (proxy.traffic().bytes_up, proxy.traffic().resets) == (6, 1)
            await end(writer)

    run(test)


def test_a_slow_close_passes_the_data_and_holds_the_end() -> None:
    async def test() -> None:
        clock = JumpingClock()
        async with proxied(clock) as (proxy, upstream):
            proxy.toxics.add(Toxic("late-end", SlowClose(5), 60, stream="up"))
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            writer.write_eof()
            assert await reader.readexactly(4) == b"ping"
            await clock.asleep(5)
            assert not upstream.ended.is_set()
            clock.jump(5)
            await upstream.ended.wait()
            assert await reader.read(1) == b""
            await end(writer)

    run(test)


def test_toxicity_meets_the_same_share_of_connections_in_every_run() -> None:
    async def passed() -> list[bool]:
        clock, met = JumpingClock(), []
        async with proxied(clock) as (proxy, upstream):
            proxy.toxics.add(Toxic("some", Reset(), 60, toxicity=0.5, stream="up"))
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                try:
                    writer.write(b"ping")
                    met.append(await reader.read(4) != b"ping")
                except ConnectionError:
                    met.append(True)
                await end(writer)
        assert upstream.got  # some got through
        return met

    async def test() -> None:
        first = await passed()
        assert 2 < sum(first) < 18
        assert await passed() == first

    run(test)


def test_what_is_held_is_bounded_and_a_faster_sender_waits() -> None:
    async def test() -> None:
        async with proxied() as (proxy, upstream):
            proxy.toxics.add(Toxic("hole", Blackhole(), 60, stream="up"))
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            sent = b"x" * (16 * HELD_BYTES)  # more than the kernel's own buffers take
            reading = asyncio.create_task(reader.readexactly(len(sent)))
            writer.write(sent)
            await eventually(lambda: proxy.traffic().bytes_held >= HELD_BYTES)
            for _ in range(1000):  # turns of the loop in which it could take in more
                await asyncio.sleep(0)
            assert proxy.traffic().bytes_held < HELD_BYTES + READ_BYTES
            assert upstream.got == b""
            proxy.toxics.remove("hole")
            assert await reading == sent
            assert proxy.traffic().bytes_held == 0
            await end(writer)

    run(test)


def test_a_client_disconnect_is_cleaned_up_and_passed_to_the_server() -> None:
    async def test() -> None:
        async with proxied() as (proxy, upstream):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            await eventually(lambda: upstream.got == b"ping")
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await upstream.broken.wait()
            await eventually(lambda: proxy.traffic().open == 0)
            assert proxy.traffic().resets == 0

    run(test)


def test_a_server_that_is_not_there_is_refused_to_the_client() -> None:
    async def test() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))  # bound and not listening
            proxy = FaultProxy("127.0.0.1", held.getsockname()[1])
            await proxy.start()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            assert proxy.traffic().refused == 1
            await end(writer)
            await proxy.close()

    run(test)


def test_a_port_that_is_taken_is_said() -> None:
    async def test() -> None:
        async with proxied() as (proxy, _):
            other = FaultProxy("127.0.0.1", 1)
            with pytest.raises(OperationError, match="cannot listen"):
                await other.start(port=proxy.port)
            with pytest.raises(OperationError, match="not been started"):
                _ = other.port

    run(test)


def controlled(test: Callable[[FaultProxy, aiohttp.ClientSession], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with proxied() as (proxy, _):
            listening = HttpServer(control(proxy, "secret"))
            await listening.start()
            headers = {"authorization": "Bearer secret", "content-type": "application/json"}
            async with aiohttp.ClientSession(listening.url, headers=headers) as session:
                await test(proxy, session)
            await listening.stop()

    run(whole)


def test_another_process_adds_lists_and_removes_toxics() -> None:
    async def test(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
        toxic = {"name": "slow", "effect": {"kind": "latency", "seconds": 0.2}, "lifetime": 30}
        async with session.post("/toxics", json=toxic) as answer:
            assert answer.status == 201
            assert (await answer.json())["toxic"]["stream"] == "down"
        assert [found.toxic for found in proxy.toxics.active()] == [Toxic("slow", Latency(0.2), 30)]
        async with session.get("/toxics") as answer:
            assert [found["toxic"]["name"] for found in await answer.json()] == ["slow"]
        async with session.delete("/toxics/slow") as answer:
            assert answer.status == 204
        async with session.delete("/toxics/slow") as answer:
            assert (answer.status, (await answer.json())["error"]) == (404, "unknown-toxic")
        async with session.get("/traffic") as answer:
            assert (await answer.json())["connections"] == 0
        assert proxy.toxics.active() == ()

    controlled(test)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"name": "a"}',
        b'{"name": "a", "effect": {"kind": "wormhole"}, "lifetime": 1}',
        b'{"name": "a", "effect": {"kind": "blackhole"}, "lifetime": -1}',
        b'{"name": "a", "effect": {"kind": "blackhole"}, "lifetime": 1, "extra": 1}',
        b'{"name": "' + b"a" * 100_000 + b'"}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_bad_toxic_is_a_clear_refusal(body: bytes) -> None:
    async def test(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
        async with session.post("/toxics", data=body) as answer:
            refusal = (413, "too-large") if len(body) > MAX_BODY_BYTES else (422, "invalid")
            assert (answer.status, (await answer.json())["error"]) == refusal
        assert proxy.toxics.active() == ()

    controlled(test)


def test_without_the_token_nothing_is_shown_or_changed() -> None:
    async def test(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
        proxy.toxics.add(Toxic("a", Latency(0), 60))
        async with session.delete("/toxics/a", headers={"authorization": "Bearer guess"}) as answer:
            assert answer.status == 401
        async with session.get("/toxics", headers={"authorization": ""}) as answer:
            assert answer.status == 401
        assert len(proxy.toxics.active()) == 1
        with pytest.raises(UsageError, match="token"):
            control(proxy, "")

    controlled(test)
