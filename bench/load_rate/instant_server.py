"""A server that answers at once, so that the generator is the limit: an asyncio protocol on uvloop.

python -m bench.load_rate.instant_server; it prints its port, and at its end what it has served, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time

import uvloop

_ID, _LENGTH = b"x-request-id: ", b"content-length: "


class Served:
    """What the server has done so far. Bytes are of the application: without TCP and IP headers."""

    def __init__(self) -> None:
        self.requests = self.bytes_in = self.bytes_out = self.connections = 0


class Instant(asyncio.Protocol):
    """One connection: each request is answered with its own id, as the reference server does."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._served.connections += 1

    def data_received(self, data: bytes) -> None:
        self._served.bytes_in += len(data)
        pending = self._pending + data if self._pending else data
        answers = []
        while (end := pending.find(b"\r\n\r\n")) >= 0:
            head = pending[: end + 2].lower()
            length = int(_value(head, _LENGTH) or 0)
            if len(pending) < end + 4 + length:
                break
            pending = pending[end + 4 + length :]
            content = b'{"request_id":"%s","intent":"x"}' % _value(head, _ID)
            answers.append(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (len(content), content)
            )
        self._pending = pending
        if answers:
            whole = b"".join(answers)
            self._served.requests += len(answers)
            self._served.bytes_out += len(whole)
            self._transport.write(whole)  # type: ignore[attr-defined]


def _value(head: bytes, name: bytes) -> bytes:
    start = head.find(name)
    return head[start + len(name) : head.find(b"\r\n", start)] if start >= 0 else b""


async def serve() -> None:
    served, stop = Served(), asyncio.Event()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Instant(served), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    print(json.dumps({**vars(served), "cpu_s": time.process_time()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processor", type=int, help="run on this processor alone")
    processor = parser.parse_args().processor
    if processor is not None:
        os.sched_setaffinity(0, {processor})
    uvloop.run(serve())
    sys.exit(0)


if __name__ == "__main__":
    main()
