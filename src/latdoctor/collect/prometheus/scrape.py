"""Fetches metrics pages over HTTP: several at once, each bounded in time and size, never following a redirect."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from latdoctor.collect.prometheus.exposition import MAX_BYTES
from latdoctor.text import clean
from latdoctor.web.address import is_loopback

if TYPE_CHECKING:
    import httpx

# `identity` keeps a small answer from unfolding into a huge one.
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class Target:
    """A metrics page's address; `shown` is the same without credentials and query, `name` is `host:port`."""

    url: str
    shown: str
    name: str
    loopback: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `body`, or why there is none and what to do about it. `done` is by the monotonic clock."""

    body: bytes | None
    why: str = ""
    next_step: str = ""
    done: float = 0.0


def shown_url(url: str) -> str:
    """`url` as it may be shown: without user name, password, query and fragment, which may be secrets. Never raises."""
    rest = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, slashes, place = rest.rpartition("://")
    return clean(f"{scheme}{slashes}{place.rpartition('@')[2]}", 300)  # a password may hold a slash


def target(given: str) -> Target:
    """`localhost:8000`, a base URL or a metrics URL → the page's address. Raises ValueError for what is none."""
    parts = urlsplit(given if "://" in given else f"http://{given}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https address")  # without the text, which may hold a password
    port = parts.port  # raises ValueError for a port that is none
    path = "/metrics" if parts.path in ("", "/") else parts.path
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return Target(
        url=urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")),
        shown=clean(urlunsplit((parts.scheme, place, path, "", "")), 300),
        name=clean(place if path == "/metrics" else place + path, 200),
        loopback=is_loopback(parts.hostname),
    )


def fetch(targets: Sequence[Target], timeout: float, limit: int = MAX_BYTES, at_once: int = 16) -> tuple[Answer, ...]:
    """One answer for each target, in their order. Each is given `timeout` seconds in all and `limit` bytes."""
    import asyncio

    return asyncio.run(_fetch(targets, timeout, limit, at_once))


async def _fetch(targets: Sequence[Target], timeout: float, limit: int, at_once: int) -> tuple[Answer, ...]:
    import asyncio

    import httpx

    gate = asyncio.Semaphore(at_once)
    # A proxy of the environment is for the world outside and no way to this machine itself.
    direct = httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False)
    outward = httpx.AsyncClient(timeout=timeout, follow_redirects=False)

    async def one(target: Target) -> Answer:
        async with gate:
            answer = await _fetch_one(direct if target.loopback else outward, target, timeout, limit)
            return replace(answer, done=time.monotonic())

    async with direct, outward:
        return tuple(await asyncio.gather(*(one(target) for target in targets)))


async def _fetch_one(client: httpx.AsyncClient, target: Target, timeout: float, limit: int) -> Answer:
    import asyncio

    import httpx

    try:
        # httpx bounds each single read; asyncio bounds the whole, so that a trickle cannot go on for ever.
        async with asyncio.timeout(timeout), client.stream("GET", target.url, headers=_HEADERS) as response:
            return await _read(response, limit)
    except (TimeoutError, httpx.TimeoutException):
        return Answer(None, f"did not answer within {timeout:g} s", _SLOW)
    except httpx.ConnectError as error:
        return Answer(None, f"cannot be reached ({_said(error, target)})", _DOWN)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return Answer(
            None,
            f"broke off ({_said(error, target)})",
            "look whether it speaks HTTP, and whether it has just restarted",
        )


async def _read(response: httpx.Response, limit: int) -> Answer:
    status = response.status_code
    if status != 200:
        place = response.headers.get("location", "")
        moved = f", to {shown_url(place)}" if 300 <= status < 400 and place else ""
        return Answer(None, f"answered with status {status}{moved}", _STATUS)
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            return Answer(None, f"sent more than {_size(limit)}", "have the exporter show fewer series")
        chunks.append(chunk)
    body = b"".join(chunks)
    # Some exporters forget the last newline. Where the transport proves that nothing is missing, it is put there, so
    # that the page is not taken for one that was cut.
    whole = "content-length" in response.headers or "transfer-encoding" in response.headers
    return Answer(body + b"\n" if whole and body and not body.endswith(b"\n") else body)


_SLOW = "the server may be overloaded or hang: look at its processes and logs"
_DOWN = "look whether the server is up and the port is right"
_STATUS = "give the address of the metrics page (Triton: port 8002, vLLM: the API port, TorchServe: port 8082)"


def _size(limit: int) -> str:
    return f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} bytes"


def _said(error: Exception, target: Target) -> str:
    return clean(str(error).replace(target.url, target.shown), 200) or type(error).__name__
