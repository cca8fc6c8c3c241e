"""Sends alerts to a listener while slow connections without credentials keep it busy.

Usage: python -m bench.listen [--connections 400] [--alerts 100]

The connections are a process of its own. A quarter each sends nothing, a head byte by byte, half a body with a wrong
token, and a health check after which it stays idle; each that the listener closes is opened again. The listener is a
process too, its journal a real one. `slowest_answer_s`: the slowest answer to an alert with the token.
The exit code is 1 where an alert was not answered with 200.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import multiprocessing
import statistics
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

from bench.harness import arguments, print_result
from tests.incident.alert_builders import alert, notification
from tests.incident.listen_process import listener

TOKEN = "bench"  # noqa: S105 - of a listener that lives for this benchmark
HEAD = b"POST /alerts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer wrong\r\n"
KINDS = {
    "silent": (b"", b""),
    "byte by byte": (b"", HEAD),
    "half a body": (HEAD + b"Content-Length: 99\r\n\r\n{", b""),
    "idle": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
}  # what each sends at once, and byte by byte
BETWEEN_BYTES = 0.2  # seconds
BEFORE_REOPENING = 0.1


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--alerts", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "token").write_text(TOKEN)
        with listener(folder, "--auth-file", "token") as running:
            quiet, _ = sent(running.url, range(options.alerts))
            spawning = multiprocessing.get_context("spawn")
            all_open = spawning.Event()
            attack = spawning.Process(target=keep_open, args=(running.url, options.connections, all_open), daemon=True)
            attack.start()
            all_open.wait()
            seconds, refused = sent(running.url, range(options.alerts, 2 * options.alerts))
            attack.terminate()
            attack.join()
    found = {
        "connections": options.connections,
        "alerts": options.alerts,
        "not_answered_200": refused,
        "slowest_answer_s": round(max(seconds), 3),
        "median_answer_s": round(statistics.median(seconds), 4),
        "slowest_answer_without_them_s": round(max(quiet), 3),
    }
    print_result(found, options.output)
    return int(bool(refused))


def sent(url: str, numbers: range) -> tuple[list[float], int]:
    """The seconds of each answer, and how many were not 200; a closed connection is one of them."""
    place, each, refused = urlsplit(url), [], 0
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    for number in numbers:
        begun = time.perf_counter()
        connection = http.client.HTTPConnection(place.netloc, timeout=60)
        try:
            connection.request("POST", place.path, notification([alert(number)]), headers)
            refused += connection.getresponse().status != 200
        except OSError:
            refused += 1
        finally:
            connection.close()
        each.append(time.perf_counter() - begun)
    return each, refused


def keep_open(url: str, count: int, all_open: Event) -> None:
    """Keep so many connections open until the process is ended."""
    asyncio.run(_keep_open(url, count, all_open))


async def _keep_open(url: str, count: int, all_open: Event) -> None:
    kinds = list(KINDS.values())
    waiting = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_reopened(url, *kinds[number % len(kinds)], waiting)) for number in range(count)]
    for _ in tasks:
        await waiting.acquire()
    all_open.set()
    await asyncio.gather(*tasks)


async def _reopened(url: str, at_once: bytes, slowly: bytes, opened: asyncio.Semaphore) -> None:
    place, first = urlsplit(url), True
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            if first:
                opened.release()
                first = False
            writer.write(at_once)
            trickling = asyncio.create_task(_trickle(writer, slowly))
            try:
                while await reader.read(4096):
                    pass
            finally:
                trickling.cancel()
                writer.transport.abort()
        await asyncio.sleep(BEFORE_REOPENING)


async def _trickle(writer: asyncio.StreamWriter, content: bytes) -> None:
    for position in range(len(content)):
        writer.write(content[position : position + 1])
        await asyncio.sleep(BETWEEN_BYTES)


if __name__ == "__main__":
    sys.exit(main())
