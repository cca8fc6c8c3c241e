"""Reasons why a request is not answered, with status and body for the client."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from latdoctor.errors import OperationError


class RequestRefused(OperationError):  # noqa: N818 - what happened, not a mistake
    """A refused request. `reason` is a fixed code, used as a metric label."""

    counted: ClassVar[str] = ""

    def __init__(self, status: int, reason: str, detail: str, *, retry_after: float = 0, close: bool = False) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.close = close

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.reason, "detail": self.what})

    @property
    def headers(self) -> dict[str, str]:
        """Retry-After in whole seconds (RFC 9110, 10.2.3), rounded up."""
        headers = {}
        if self.retry_after > 0:
            headers["retry-after"] = str(max(1, min(3600, round(self.retry_after + 0.5))))
        if self.close:
            headers["connection"] = "close"
        return headers


class BadRequest(RequestRefused):
    """The request itself is wrong: 4xx, and nothing else is disturbed."""

    counted = "rejected"


class LoadShed(RequestRefused):
    """The request is fine, but there is no room for it now: 429, or 503 where the queue is full."""

    counted = "shed"


class Unavailable(RequestRefused):
    """The server is starting, draining, or lost the worker that had the request."""

    def __init__(self, reason: str, detail: str, *, retry_after: float = 1, close: bool = False) -> None:
        super().__init__(503, reason, detail, retry_after=retry_after, close=close)


class ClientGone(OperationError):  # noqa: N818 - what happened, not a mistake
    """The client closed its connection before the answer was ready; there is no response."""

    def __init__(self) -> None:
        super().__init__("the client has gone")
