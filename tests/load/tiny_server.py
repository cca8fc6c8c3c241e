"""A server small enough to be trusted, in a thread of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from latdoctor.load.text_tokens import state_checksum


class TinyServer:
    """Answers each request at once, but in `frozen` (seconds since its first request) not before that ends.

    A first attempt of every tenth request gets a 503, a broken body a 400, and `wrong` answers carry another's id.
    """

    def __init__(self, frozen: tuple[float, float], wrong: bool) -> None:
        self._frozen, self._wrong = frozen, wrong
        self._first: float | None = None
        self.attempts: list[tuple[str, str, int]] = []
        self.address = ""
        self.session: Callable[[list[str]], dict[str, object]] = lambda _: {"tokens": 0, "checksum": state_checksum(())}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
                length = int(headers["Content-Length"])
                status, answer = self._answer(await reader.readexactly(length), headers)
                await self._thaw()
                content = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()

    def _answer(self, content: bytes, headers: dict[str, str]) -> tuple[int, dict[str, object]]:
        try:
            asked = json.loads(content)
            self.attempts.append((asked["request_id"], headers["X-Attempt"], asked["attempt"]))
        except (ValueError, TypeError, KeyError):
            return 400, {"error": "bad"}
        if len(asked["request_id"]) and asked["request_id"].endswith("0") and asked["attempt"] == 0:
            return 503, {"error": "busy"}
        answer = {"request_id": "another" if self._wrong else asked["request_id"], "intent": "x"}
        return 200, answer | ({"session": self.session(asked["transcript"])} if "session" in asked else {})

    async def _thaw(self) -> None:
        now = asyncio.get_running_loop().time()
        self._first = now if self._first is None else self._first
        begin, end = self._frozen
        if begin <= now - self._first < end:
            await asyncio.sleep(self._first + end - now)


@contextmanager
def serving(frozen: tuple[float, float] = (0.0, 0.0), wrong: bool = False) -> Iterator[TinyServer]:
    server, ready, stop = TinyServer(frozen, wrong), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()
        listening.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
