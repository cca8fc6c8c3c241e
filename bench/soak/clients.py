"""Misbehaving clients: they disconnect early, send slowly or send invalid data; and what the server must count of them.

`Expect: 100-continue` makes the count exact: the server requests a body only once it has counted the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random

PATIENCE = 30.0  # seconds; a client that waits longer has found a hanging server
_GOOD = b'{"text": "where is my parcel and when will it arrive"}'
_GONE = "gone"


class Account:
    """The counts of these clients. `arrived`: requests that the server must have counted; `statuses`: answers to these;
    `vanished`: of them, those that left before the whole request was sent; `unknown`: those that left while it was
    computed, so that the server may have answered. `wrong`: unexpected answers.
    """

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.arrived = self.vanished = self.unknown = 0
        self.wrong: list[str] = []

    def answered(self, status: str) -> None:
        self.arrived += 1
        self.statuses[status] += 1

    def expect(self, what: str, status: str, allowed: tuple[str, ...]) -> None:
        if status not in allowed:
            self.wrong.append(f"{what}: {status}, not {' or '.join(allowed)}")


def _request(body: bytes, *headers: bytes, length: int | None = None, target: bytes = b"POST /v1/intent") -> bytes:
    size = len(body) if length is None else length
    lines = [target + b" HTTP/1.1", b"host: localhost", b"content-length: %d" % size, *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


_EXPECT = b"expect: 100-continue"
_CLOSE = b"connection: close"

# What is sent, the answers that are right, and whether the request reaches the counters of the intent interface.
HOSTILE: Mapping[str, tuple[bytes, tuple[str, ...], bool]] = {
    "no-http": (b"\x00\xff\xfe rubbish\r\n\r\n", ("400",), False),
    "no-path": (b"GET  HTTP/1.1\r\n\r\n", ("400",), False),
    "odd-path": (b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n", ("400",), False),
    "two-lengths": (b"POST /v1/intent HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}", ("400",), False),
    "negative-length": (b"POST /v1/intent HTTP/1.1\r\ncontent-length: -5\r\n\r\n", ("400",), False),
    "endless-length": (_request(b"{", length=10**15), ("413",), True),
    "length-beyond-64-bits": (_request(b"{", length=10**30), ("400",), False),
    "large-head": (b"GET /healthz HTTP/1.1\r\n" + b"x-a: " + b"a" * 40_000 + b"\r\n\r\n", ("431",), False),
    "huge-head": (b"GET /healthz HTTP/1.1\r\n" + b"x-a: " + b"a" * 300_000 + b"\r\n\r\n", ("431",), False),
    "endless-head": (b"GET /healthz HTTP/1.1\r\n" + b"x-a: b\r\n" * 60_000, ("431",), False),
    "huge-path": (b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n", ("414",), False),
    "wrong-method": (_request(b"", _CLOSE, target=b"GET /v1/intent"), ("405",), False),
    "wrong-path": (_request(b"", _CLOSE, target=b"POST /v2/intent"), ("404",), False),
    "no-token": (_request(b"", _CLOSE, target=b"GET /admin/config"), ("401",), False),
    "wrong-token": (
        _request(b"", _CLOSE, b"authorization: Bearer \xff\xfe", target=b"GET /debug/queue"), ("401",), False,
    ),
    "upgrade": (
        _request(b"", b"connection: close, upgrade", b"upgrade: websocket", target=b"GET /healthz"), ("200",), False,
    ),
    "deep": (_request(b'{"text": ' + b"[" * 60_000, _CLOSE), ("422",), True),
    "too-long": (_request(b'{"text": "' + b"a " * 3000 + b'"}', _CLOSE), ("413",), True),
    "absurd-audio": (_request(b'{"audio_seconds": 1e308}', _CLOSE), ("422",), True),
    "negative-audio": (_request(b'{"audio_seconds": -1}', _CLOSE), ("422",), True),
    "huge-body": (_request(b"x" * 3_000_000, _CLOSE), ("413",), True),
    "unknown-session": (_request(b'{"text": "a", "session": "never-seen/1"}', _CLOSE), ("200", "429"), True),
}  # fmt: skip


class Crowd:
    """Starts misbehaving clients, `rate` a second of each kind, until it is stopped; then waits for the last."""

    def __init__(self, port: int, seed: int, rate: float, *, patient_slow: bool) -> None:
        self.account = Account()
        self._port, self._rate = port, rate
        self._chance = Random(f"{seed}/crowd")
        self._stopped = asyncio.Event()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "vanishes-in-its-body": self._half_a_body,
            "vanishes-while-it-waits": self._leaves,
            "slow-body": self._slow_body,
            "two-at-once": self._two_at_once,
            "hostile": self._hostile,
            "silent": self._silent,
            "half-a-head": self._half_a_head,
        }
        if patient_slow:
            self._kinds["never-ending-body"] = self._never_ending_body

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, kind in self._kinds.items():
                tasks.create_task(self._keep(tasks, name, kind))

    async def _keep(self, tasks: asyncio.TaskGroup, name: str, kind: Callable[[], Awaitable[None]]) -> None:
        while not await self._waits(self._chance.expovariate(self._rate)):
            tasks.create_task(self._one(name, kind))

    async def _one(self, name: str, kind: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await kind()
            self.account.done[name] += 1
        except TimeoutError:
            self.account.wrong.append(f"{name}: nothing within {PATIENCE:g} s")
        except OSError as error:
            self.account.wrong.append(f"{name}: {error!r}")

    async def _waits(self, seconds: float) -> bool:
        """Whether it was stopped meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
        return self._stopped.is_set()

    async def _half_a_body(self) -> None:
        async with _Connection(self._port) as connection:
            if await self._send_head(connection, length=99):
                connection.send(b'{"text"')
                self.account.arrived += 1
                self.account.vanished += 1

    async def _leaves(self) -> None:
        async with _Connection(self._port) as connection:
            if await self._send_head(connection, length=len(_GOOD)):
                connection.send(_GOOD)
                await asyncio.sleep(self._chance.choice((0, 0.001, 0.01, 0.05)))
                self.account.arrived += 1
                self.account.unknown += 1
                connection.reset()

    async def _slow_body(self) -> None:
        async with _Connection(self._port) as connection:
            if await self._send_head(connection, length=len(_GOOD)):
                for start in range(0, len(_GOOD), 16):
                    connection.send(_GOOD[start : start + 16])
                    await asyncio.sleep(0.2)
                await self._answer("slow-body", connection, ("200", "429", "503"))

    async def _never_ending_body(self) -> None:
        async with _Connection(self._port) as connection:
            if await self._send_head(connection, length=99):
                await self._answer("never-ending-body", connection, ("408",))

    async def _two_at_once(self) -> None:
        async with _Connection(self._port) as connection:
            connection.send(_request(_GOOD) + _request(_GOOD, _CLOSE))
            for _ in range(2):
                await self._answer("two-at-once", connection, ("200", "429", "503"))

    async def _hostile(self) -> None:
        name = self._chance.choice(sorted(HOSTILE))
        sent, allowed, counted = HOSTILE[name]
        async with _Connection(self._port) as connection:
            connection.send(sent)
            if counted:
                await self._answer(name, connection, (*allowed, "503"))
            else:
                self.account.expect(name, await connection.status(), allowed)

    async def _silent(self) -> None:
        async with _Connection(self._port):
            await self._waits(self._chance.uniform(0, 8))

    async def _half_a_head(self) -> None:
        async with _Connection(self._port) as connection:
            connection.send(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\nx-")
            await self._waits(self._chance.uniform(0, 8))

    async def _send_head(self, connection: _Connection, length: int) -> bool:
        """Send a head and waits until its body is requested; False if the request was refused."""
        connection.send(_request(b"", _EXPECT, length=length))
        status = await connection.status()
        if status == "100":
            return True
        self.account.answered(status)
        self.account.expect("at arrival", status, ("503",))
        return False

    async def _answer(self, what: str, connection: _Connection, allowed: tuple[str, ...]) -> None:
        status = await connection.status()
        self.account.answered(status)
        self.account.expect(what, status, allowed)


class _Connection:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> _Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def send(self, content: bytes) -> None:
        self._writer.write(content)

    def reset(self) -> None:
        """Close with a RST, which the server receives at once."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def status(self) -> str:
        """The status of the next answer, whose body is read; `gone` where the connection was closed without one."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if length:
                await self._reader.readexactly(int(length[0].partition(b":")[2]))
        except (asyncio.IncompleteReadError, OSError):
            return _GONE
        return head.split(b" ", 2)[1].decode()
