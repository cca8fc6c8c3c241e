"""Requests to the API server of a Kubernetes cluster, with the official client, and a watch that outlives a gap."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Any

from latdoctor.cluster_clock import ServerClock
from latdoctor.errors import OperationError

GONE = 410
UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
TOO_MANY_REQUESTS = 429
NO_ANSWER = 0
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
Body = Mapping[str, Any] | Sequence[Mapping[str, Any]]  # a JSON Patch is a list
_WATCH_FOR = 25  # seconds: shorter than the time-out between pieces, so that a quiet watch ends by itself
_RETRY_AFTER, _LONGEST_RETRY_AFTER = 0.5, 30.0


class NoAnswer(StrEnum):
    """Why there is no usable answer."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    TOO_LARGE = "too-large"
    MALFORMED = "malformed"


class ApiError(OperationError):
    """A refused request with its HTTP status; NO_ANSWER where there is no usable answer, and then why.

    `causes`: the codes in the server's answer, such as DisruptionBudget or NamespaceTerminating. `retry_after`: seconds
    after which the server wants to be asked again, where it sent them.
    """

    def __init__(
        self,
        status: int,
        what: str,
        where: str,
        causes: Sequence[str] = (),
        *,
        no_answer: NoAnswer = NoAnswer.UNREACHABLE,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(what, where=where)
        self.status = status
        self.causes = tuple(causes)
        self.no_answer = no_answer
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects at one time: replaces everything that was known before."""

    objects: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """One change; `kind` is ADDED, MODIFIED or DELETED."""

    kind: str
    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request: its method (get, post, patch, delete), the path, the body and the query."""

    method: str
    path: str
    body: Body | None = None
    content_type: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to connect and between two pieces of an answer, and the bytes of an answer (None: any number)."""

    connect: float = 5.0
    read: float = 30.0
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """How the API server is found: a context of a kubeconfig file, or the service account of this Pod.

    Empty: the current context, and the file that kubectl uses ($KUBECONFIG, else ~/.kube/config). Inside a Pod without
    a kubeconfig the service account.
    """

    kubeconfig: Path | None = None
    context: str = ""


class ClusterApi:
    """The API server of a login. Safe for several threads. Raises ApiError where it does not answer."""

    def __init__(self, login: Login, limits: Limits = Limits()) -> None:
        """Raises OperationError where there is no such login."""
        from kubernetes import client

        self._limits = limits
        settings = client.Configuration()
        self.context = _configure(settings, login)  # its name in the kubeconfig; empty in a Pod
        settings.connection_pool_maxsize = 64
        settings.retries = False
        self._client = client.ApiClient(settings)
        self.clock = ServerClock()

    @property
    def address(self) -> str:
        """The URL of the API server."""
        return str(self._client.configuration.host)

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._json(path, self._send("get", path, query=query))

    def content(self, path: str) -> bytes:
        """The answer as it is, of a path that gives no JSON."""
        return self._bounded(path, self._send("get", path))

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._json(path, self._send("post", path, body))

    def patch(self, path: str, body: Body, content_type: str = STRATEGIC_MERGE) -> dict[str, Any]:
        return self._json(path, self._send("patch", path, body, content_type))

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._json(path, self._send("delete", path, body or {}))

    def request(self, request: ApiRequest, seconds: float) -> dict[str, Any]:
        """Send `request`, and wait at most so many seconds for each piece of the answer."""
        one, timeout = request, (min(self._limits.connect, seconds), seconds)
        return self._json(one.path, self._send(one.method, one.path, one.body, one.content_type, one.query, timeout))

    def follow(self, path: str, stop: Event, **query: str) -> Iterator[Listed | Changed]:
        """The objects of `path` and their changes, until `stop` is set.

        An expired watch (410), a lost connection or an overloaded server (429) is followed by a new list.
        """
        while not stop.is_set():
            try:
                answer = self.get(path, **query)
                yield Listed(tuple(answer["items"]))
                yield from self._watch(path, answer["metadata"]["resourceVersion"], stop, query)
            except ApiError as error:
                if error.status not in (NO_ANSWER, GONE, TOO_MANY_REQUESTS):
                    raise
                again = _RETRY_AFTER if error.retry_after is None else min(error.retry_after, _LONGEST_RETRY_AFTER)
                stop.wait(0 if error.status == GONE else again)

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
        try:
            decoded = json.loads(self._bounded(path, response))
        except ValueError as error:
            raise ApiError(NO_ANSWER, "the answer is no JSON", path, no_answer=NoAnswer.MALFORMED) from error
        if not isinstance(decoded, dict):
            raise ApiError(NO_ANSWER, "the answer is no object", path, no_answer=NoAnswer.MALFORMED)
        return decoded

    def _bounded(self, path: str, response: Any) -> bytes:
        """The body of an answer. Raises ApiError for one that is too large."""
        content: bytes = self._checked(path, lambda: self._content(response))
        most = self._limits.bytes
        if most is not None and len(content) > most:
            raise ApiError(NO_ANSWER, f"the answer is larger than {most >> 20} MiB", path, no_answer=NoAnswer.TOO_LARGE)
        return content

    def _content(self, response: Any) -> bytes:
        most = self._limits.bytes
        if most is None:
            return bytes(response.data)
        content = bytes(response.read(most + 1, decode_content=True))
        if len(content) > most:
            response.close()  # the rest would be read before another request could use the connection
        return content

    def _send(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: tuple[float, float] | None = None,
    ) -> Any:
        """The response, whose body is not read yet."""
        response = self._checked(path, lambda: self._answer(method, path, body, content_type, query, timeout))
        if 200 <= response.status < 300:
            return response.response
        content = self._checked(path, response.read)
        message, causes = _message(response.status, response.reason, content)
        raise ApiError(response.status, message, path, causes, retry_after=_retry_after(response.response.headers))

    def _answer(
        self,
        method: str,
        path: str,
        body: Body | None,
        content_type: str,
        query: Mapping[str, str] | None,
        timeout: tuple[float, float] | None,
    ) -> Any:
        request = self._client.param_serialize(
            method.upper(),
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        patience = timeout or (self._limits.connect, self._limits.read)
        sent = time.time()
        answer = self._client.call_api(*request, _request_timeout=patience)
        self.clock.answered(answer.response.headers.get("Date", ""), sent, time.time())
        return answer

    @staticmethod
    def _checked(path: str, call: Callable[[], Any]) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError, NewConnectionError, SSLError
        from urllib3.exceptions import TimeoutError as HttpTimeout

        try:
            return call()
        except ApiException as error:  # the client's own, such as a certificate that it does not accept
            what = f"the API server does not answer: {error.reason}"
            raise ApiError(NO_ANSWER, what, path, no_answer=NoAnswer.CERTIFICATE) from error
        except HTTPError as error:
            slow = isinstance(error, HttpTimeout) and not isinstance(error, NewConnectionError)
            why = NoAnswer.TIMEOUT if slow else NoAnswer.UNREACHABLE
            why = NoAnswer.CERTIFICATE if isinstance(error, SSLError) else why
            raise ApiError(NO_ANSWER, f"the API server does not answer: {error}", path, no_answer=why) from error


def _configure(settings: Any, login: Login) -> str:
    """Write the login into the client's `settings`, and return the name of its context."""
    from kubernetes import config

    file = str(login.kubeconfig) if login.kubeconfig else None
    named = bool(file or login.context or os.environ.get("KUBECONFIG"))
    try:
        if not named and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
            return ""
        contexts, current = config.list_kube_config_contexts(config_file=file)
        names = [str(one["name"]) for one in contexts]
        if login.context and login.context not in names:
            raise OperationError(
                f"the kubeconfig has no context {login.context!r}",
                next_step="name one of its contexts",
                listed=names,
            )
        context = login.context or str(current["name"])
        config.load_kube_config(file, context, client_configuration=settings, persist_config=False)
    except (config.ConfigException, OSError) as error:
        raise OperationError(
            f"no login to a cluster: {error}", next_step="kubectl config get-contexts lists the contexts"
        ) from error
    return context


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of `Retry-After`; None without it, or for a date, which API servers do not send."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() and len(text) < 6 else None


def _message(status: int, reason: str, content: bytes) -> tuple[str, tuple[str, ...]]:
    """The server's own message and the codes of its causes, where it sent them."""
    try:
        answer = json.loads(content)
        causes = (answer.get("details") or {}).get("causes") or ()
        return str(answer["message"]), tuple(str(one.get("reason", "")) for one in causes)
    except (AttributeError, TypeError, ValueError, KeyError):
        return f"HTTP {status} {reason}", ()
