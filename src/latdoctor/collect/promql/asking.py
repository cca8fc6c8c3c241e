"""Asks a Prometheus server: several questions at once, each bounded in size, all of them in time; no redirect."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latdoctor.collect.prometheus.scrape import shown_url
from latdoctor.collect.promql.access import AUTH_FILE, CA_FILE
from latdoctor.collect.promql.answers import MAX_BYTES, error_of
from latdoctor.collect.source import Access
from latdoctor.text import clean

if TYPE_CHECKING:
    import httpx

AT_ONCE = 4  # a server that serves an incident already has enough to do
MAX_TOTAL = 64 << 20  # of all answers together
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}
_DOWN = "look whether the server is up and the address is right"
_SLOW = "ask for less: --select '{job=\"…\"}', or a shorter --since"
_LOGIN = f"put `Bearer TOKEN` or `Basic USER:PASSWORD` into a file and name it in {AUTH_FILE}"
_TRUST = f"name the certificate authority's file in {CA_FILE}"


@dataclass(frozen=True, slots=True)
class Question:
    """One query; `start` and `step` are 0 for what is asked of one moment, `end`. Times in unix seconds."""

    expression: str
    end: float
    start: float = 0.0
    step: float = 0.0

    @property
    def path(self) -> str:
        return "/api/v1/query_range" if self.step else "/api/v1/query"

    def form(self, timeout: float) -> Mapping[str, str]:
        """The server itself gives up at the same time, so that it does not work for nobody."""
        base = {"query": self.expression, "timeout": f"{max(1, round(timeout * 1000))}ms"}
        if self.step:
            return {**base, "start": f"{self.start:.3f}", "end": f"{self.end:.3f}", "step": f"{self.step:.3f}"}
        return {**base, "time": f"{self.end:.3f}"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The raw answer, or why there is none and what to do about it."""

    body: bytes | None
    why: str = ""
    next_step: str = ""


def ask(access: Access, questions: Sequence[Question], timeout: float, deadline: float) -> tuple[Reply, ...]:
    """One reply for each question, in their order: `timeout` seconds for each, `deadline` for all."""
    try:
        trust = _trust(access)
    except (OSError, ssl.SSLError) as error:
        return (Reply(None, f"{access.ca_file} is no certificate file ({_said(error)})", _TRUST),) * len(questions)
    return asyncio.run(_ask(access, questions, timeout, deadline, trust))


def _trust(access: Access) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=access.ca_file) if access.ca_file is not None else True


async def _ask(
    access: Access, questions: Sequence[Question], timeout: float, deadline: float, trust: ssl.SSLContext | bool
) -> tuple[Reply, ...]:
    import httpx

    headers = {**_HEADERS, **({"Authorization": access.authorization} if access.authorization else {})}
    gate = asyncio.Semaphore(AT_ONCE)
    ends = asyncio.get_running_loop().time() + deadline
    left = [MAX_TOTAL]
    # A proxy of the environment is for the world outside and no way to this machine itself.
    async with httpx.AsyncClient(
        timeout=timeout, follow_redirects=False, trust_env=not access.loopback, verify=trust, headers=headers
    ) as client:

        async def one(question: Question) -> Reply:
            async with gate:
                patience = min(timeout, ends - asyncio.get_running_loop().time())
                if patience <= 0:
                    return Reply(None, f"was given up after {deadline:g} s in all", _SLOW)
                reply = await _post(client, access, question, patience, min(MAX_BYTES, left[0]))
                left[0] -= len(reply.body or b"")
                return reply

        return tuple(await asyncio.gather(*(one(question) for question in questions)))


async def _post(client: httpx.AsyncClient, access: Access, question: Question, patience: float, limit: int) -> Reply:
    import httpx

    url = access.url + question.path
    try:
        async with (
            asyncio.timeout(patience),
            client.stream("POST", url, data=dict(question.form(patience))) as response,
        ):
            return await _read(response, limit)
    except (TimeoutError, httpx.TimeoutException):
        return Reply(None, f"did not answer within {patience:.3g} s", _SLOW)
    except httpx.ConnectError as error:
        said = _said(error)
        return Reply(None, f"cannot be reached ({said})", _TRUST if "CERTIFICATE" in said.upper() else _DOWN)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return Reply(None, f"broke off ({_said(error)})", _DOWN)


async def _read(response: httpx.Response, limit: int) -> Reply:
    status = response.status_code
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            return Reply(None, f"sent more than {limit >> 20} MiB", _SLOW)
        chunks.append(chunk)
    body = b"".join(chunks)
    if status == 200:
        return Reply(body)
    if 300 <= status < 400:
        place = shown_url(response.headers.get("location", ""))
        return Reply(None, f"sends us elsewhere, to {place}, which is not followed", "give that address if it is right")
    if status in (401, 403):
        return Reply(None, f"refused us with status {status}", _LOGIN)
    if status in (422, 503, 504):
        return Reply(None, f"gave up on a question: {error_of(body) or f'status {status}'}", _SLOW)
    return Reply(None, f"answered with status {status}: {error_of(body) or 'no Prometheus server?'}", _DOWN)


def _said(error: Exception) -> str:
    return clean(str(error), 200) or type(error).__name__
