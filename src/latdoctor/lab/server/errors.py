"""Reasons why a request is not answered or an admin request is refused, with status and body for the client."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from starlette.responses import Response

from latdoctor.errors import OperationError

CLIENT_GONE = 499  # nginx's status for a connection that the client closed; never delivered


class RequestRefused(OperationError):  # noqa: N818 - what happened, not a mistake
    """A refused request. `reason` is a fixed code, used as a metric label; `retry_after` in seconds, 0: not sent."""

    def __init__(self, status: int, reason: str, detail: str, *, retry_after: float = 0, close: bool = False) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.close = close

    def response(self, *, close: bool = False) -> Response:
        """The response to the client; Retry-After in whole seconds (RFC 9110, 10.2.3), rounded up."""
        headers = {}
        if self.retry_after > 0:
            headers["retry-after"] = str(max(1, min(3600, round(self.retry_after + 0.5))))
        if self.close or close:
            headers["connection"] = "close"
        body = msgspec.json.encode({"error": self.reason, "detail": self.what})
        return Response(body, self.status, headers, "application/json")


class BadRequest(RequestRefused):
    """The request itself is wrong: 4xx."""


class LoadShed(RequestRefused):
    """The request is fine, but there is no room for it now: 429, or 503 where the queue is full."""


class Unavailable(RequestRefused):
    """The server is starting, draining, or lost the worker that had the request."""

    def __init__(self, reason: str, detail: str, *, retry_after: float = 1) -> None:
        super().__init__(503, reason, detail, retry_after=retry_after)


class ClientGone(OperationError):  # noqa: N818 - what happened, not a mistake
    """The client closed its connection before the answer was ready; there is no response."""

    def __init__(self) -> None:
        super().__init__("the client has gone")


class AdminConflict(OperationError):  # noqa: N818 - what happened, not a mistake
    """An admin request that is valid, but not possible in the present state of the server."""

    status: ClassVar[int] = 409
    reason: ClassVar[str] = "not-possible"


class StaleEtag(AdminConflict):
    """The configuration or the state has changed since the caller read it."""

    status = 412
    reason = "changed-meanwhile"


class NeedsRestart(AdminConflict):
    """Knobs that cannot be changed while the server runs."""

    reason = "needs-restart"

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"needs a restart: {', '.join(names)}", next_step="start the server anew with them")
        self.names = names


class ProfilerBusy(AdminConflict):
    """A profile is already in progress."""

    reason = "busy"
