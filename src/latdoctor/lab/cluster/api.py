"""Requests to the API server by path, with the official client, and a watch that lists again after a gap."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from latdoctor.errors import OperationError

GONE = 410
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
NO_ANSWER = 0
_PATCH = "application/strategic-merge-patch+json"
_TIMEOUT = (5.0, 30.0)  # seconds to connect, and between two pieces of the answer
_WATCH_FOR = 25  # seconds: shorter than the time-out between pieces, so that a quiet watch ends by itself
_RETRY_AFTER = 0.5


class ApiError(OperationError):
    """A refused request with its HTTP status; NO_ANSWER where the server cannot be reached."""

    def __init__(self, status: int, what: str, where: str) -> None:
        super().__init__(what, where=where)
        self.status = status


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects at one time: replaces everything that was known before."""

    objects: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """One change; `kind` is ADDED, MODIFIED or DELETED."""

    kind: str
    object: dict[str, Any]


class ClusterApi:
    """The API server of a kubeconfig. Safe for several threads. Raises ApiError where it does not answer."""

    def __init__(self, kubeconfig: Path) -> None:
        from kubernetes import client, config
        from kubernetes.dynamic import DynamicClient

        settings = client.Configuration()
        config.load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
        settings.connection_pool_maxsize = 64
        settings.retries = False
        self._client = client.ApiClient(settings)
        cache = kubeconfig.parent / f"{kubeconfig.name}.discovery.json"
        self._dynamic = self._checked("/apis", lambda: DynamicClient(self._client, cache_file=str(cache)))

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._json(path, self._send("get", path, query=query))

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._json(path, self._send("post", path, body))

    def merge(self, path: str, body: Mapping[str, Any], content_type: str = _PATCH) -> dict[str, Any]:
        """A patch, by default a strategic merge."""
        return self._json(path, self._send("patch", path, body, content_type))

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._json(path, self._send("delete", path, body or {}))

    def follow(self, path: str, stop: Event, **query: str) -> Iterator[Listed | Changed]:
        """The objects of `path` and their changes, until `stop` is set.

        An expired watch (410) or a lost connection is followed by a new list.
        """
        while not stop.is_set():
            try:
                answer = self.get(path, **query)
                yield Listed(tuple(answer["items"]))
                yield from self._watch(path, answer["metadata"]["resourceVersion"], stop, query)
            except ApiError as error:
                if error.status not in (NO_ANSWER, GONE):
                    raise
                stop.wait(_RETRY_AFTER if error.status == NO_ANSWER else 0)

    def _watch(self, path: str, version: str, stop: Event, query: Mapping[str, str]) -> Iterator[Changed]:
        """Changes after `version`; a watch that ends by itself resumes. Raises ApiError."""
        while not stop.is_set():
            asked = {"watch": "true", "timeoutSeconds": str(_WATCH_FOR), "allowWatchBookmarks": "true", **query}
            for event in self._lines(path, {**asked, "resourceVersion": version}):
                if stop.is_set():
                    return
                if event["type"] == "ERROR":
                    raise ApiError(event["object"]["code"], event["object"].get("message", ""), path)
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield Changed(event["type"], event["object"])

    def _lines(self, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        from urllib3.exceptions import HTTPError

        response = self._send("get", path, query=query)
        rest = b""
        try:
            for piece in response.stream(amt=None):
                *lines, rest = (rest + piece).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        except HTTPError as error:
            raise ApiError(NO_ANSWER, str(error), path) from error
        finally:
            response.close()

    def _json(self, path: str, response: Any) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self._checked(path, lambda: response.data))
        return decoded

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Any:
        return self._checked(
            path,
            lambda: self._dynamic.request(
                method,
                path,
                body=body,
                query_params=list((query or {}).items()),
                content_type=content_type,
                serialize=False,
                _request_timeout=_TIMEOUT,
            ),
        )

    @staticmethod
    def _checked(path: str, call: Any) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call()
        except ApiException as error:
            raise ApiError(error.status or NO_ANSWER, _message(error), path) from error
        except HTTPError as error:
            raise ApiError(NO_ANSWER, f"the API server does not answer: {error}", path) from error


def _message(error: Any) -> str:
    """The server's own message, where it sent one."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"HTTP {error.status} {error.reason}"
