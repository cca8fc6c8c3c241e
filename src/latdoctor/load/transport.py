"""Sends single attempts over HTTP and reports what became of them."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import aiohttp
import msgspec

from latdoctor.load.answered_history import has_wrong_history
from latdoctor.load.outcome import BAD_ANSWER, NO_CONNECTION, RESET, WRONG_HISTORY, Reply
from latdoctor.load.request_template import RequestTemplate

PATH = "/v1/intent"
_MAX_ANSWER = 64 * 1024
# Less than the 5 s after which common servers close an idle connection: a request must never meet one being closed.
_KEEP_ALIVE_S = 4.0


class _Answer(msgspec.Struct):
    request_id: str


class HttpTransport:
    """A transport to one server. Enter it before the first request."""

    def __init__(
        self, address: str, traces: list[aiohttp.TraceConfig] | None = None, request: RequestTemplate | None = None
    ) -> None:
        self._traces = traces
        self._url = address.rstrip("/") + (request.path if request else PATH)
        self._has_ids = request is None  # only the reference server repeats the id of a request in its answer
        self._answers = msgspec.json.Decoder(_Answer)

    async def __aenter__(self) -> HttpTransport:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),  # the run has its own timeout, which it counts
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json"},
            trace_configs=self._traces,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        """Send one attempt; a failure is the status of the reply."""
        headers = {"X-Request-Id": request_id, "X-Attempt": str(attempt)}
        try:
            async with self._session.post(self._url, data=content, headers=headers, allow_redirects=False) as response:
                answer = await _read(response)
                if answer is None or (
                    self._has_ids and response.status == 200 and not self._is_for(request_id, answer)
                ):
                    return Reply(BAD_ANSWER)
                if self._has_ids and response.status == 200 and has_wrong_history(content, answer):
                    return Reply(WRONG_HISTORY)
                return Reply(str(response.status), _seconds(response.headers.get("Retry-After")), len(answer))
        except aiohttp.ClientConnectorError:
            return Reply(NO_CONNECTION)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            return Reply(RESET)
        except aiohttp.ClientError:
            return Reply(BAD_ANSWER)

    def _is_for(self, request_id: str, answer: bytes) -> bool:
        try:
            return self._answers.decode(answer).request_id == request_id
        except msgspec.DecodeError:
            return False


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Read the response body; None beyond _MAX_ANSWER bytes."""
    parts: list[bytes] = []
    left = _MAX_ANSWER
    async for part in response.content.iter_any():
        parts.append(part)
        left -= len(part)
        if left < 0:
            response.close()
            return None
    return b"".join(parts)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; None for its other form, a date, which such servers do not send."""
    return float(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 6 else None


class Transport(Protocol):
    """Send one attempt. Failures of the server or the network are statuses, never exceptions."""

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply: ...
