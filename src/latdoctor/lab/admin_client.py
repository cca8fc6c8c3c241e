"""HTTP client of a server's or router's admin interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, send_request
from latdoctor.http.failure import FailureCode, RequestFailure
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.sanitize import clean

TIMEOUT = 10.0  # seconds
CHANGED = 412
ATTEMPTS = 3  # of a change that conflicts with another client's


def typed_knobs(knobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """`knobs` with each value of its own type. Raises UsageError for an unknown one or a bad value."""
    whole = msgspec.to_builtins(patched(ServerConfig(), knobs, strict=False))
    return {group: {name: whole[group][name] for name in values} for group, values in knobs.items()}


class AdminClient:
    """One server's admin interface at `url`, with its token."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._token = token

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def config(self) -> tuple[ServerConfig, str]:
        """The present configuration and its ETag. Raises OperationError."""
        headers, body = self.ask("GET", "/admin/config")
        return msgspec.json.decode(body, type=ServerConfig), headers.get("etag", "")

    def configure(self, patch: Mapping[str, Any]) -> None:
        """Turns live knobs, against the version that was read. Raises OperationError."""
        for attempt in range(ATTEMPTS):
            _, etag = self.config()
            try:
                self.ask("PATCH", "/admin/config", patch, {"If-Match": etag})
            except AdminRefusedError as refused:
                if refused.status != CHANGED or attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def put(self, path: str, body: object) -> None:
        """Raises OperationError."""
        self.ask("PUT", path, body)

    def delete(self, path: str) -> None:
        """Raises OperationError."""
        self.ask("DELETE", path)

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        """Return the headers (ETag alone, names in lower case) and the body of a response.

        Raises OperationError, AdminRefusedError for another status than 2xx.
        """
        where = f"{method} {self.url}{path}"
        content = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json", **self.headers, **(headers or {})}
        response = send_request(HttpRequest(method, self.url + path, sent, content, reads=True), TIMEOUT)
        if isinstance(response, RequestFailure):
            raise OperationError(f"the admin interface {response.why}", where=where, next_step=response.next_step)
        if response.failure is FailureCode.STATUS:
            raise AdminRefusedError(response.status, response.body.decode(errors="replace"), where)
        if response.failure is not None:
            raise OperationError(f"the admin interface {response.why}", where=where)
        return response.headers, response.body


class AdminRefusedError(OperationError):
    """The admin interface refused the request, with this status."""

    def __init__(self, status: int, message: str, where: str) -> None:
        super().__init__(f"the admin interface answered {status}: {clean(message, 300)}", where=where)
        self.status = status
