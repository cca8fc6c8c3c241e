"""Reads from the API server: concurrent, page by page, each bounded in time, bytes and number of objects.

A read that is refused or fails is an ApiError among the answers, so that the others still count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from latdoctor.background import BackgroundCall
from latdoctor.cluster_api import GONE, NO_ANSWER, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, ClusterApi, NoAnswer
from latdoctor.collectors.kubernetes.resources import Resource
from latdoctor.collectors.kubernetes.trimmed_objects import trimmed

Object = Mapping[str, Any]
PAGE, PAGES = 500, 4  # objects of one answer, and answers of one list
_AT_ONCE = 8
_TRIES = 3  # of a request that the server refuses as overloaded
_AGAIN_AFTER = 1.0  # seconds, where the server does not say when


@dataclass(frozen=True, slots=True)
class Read:
    """A list, or the object `name`, to read. `query`: selectors and other parameters."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def verb(self) -> str:
        return "get" if self.name else "list"


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects that were read. `is_whole`: all that there are; `version`: that of the API."""

    found: tuple[Object, ...] = ()
    is_whole: bool = True
    version: str = ""


Answer = Objects | ApiError


def groups_of(api: ClusterApi) -> frozenset[tuple[str, str]]:
    """The groups and versions that the server has. Raises ApiError."""
    groups = api.get("/apis").get("groups", [])
    return frozenset((group["name"], one["version"]) for group in groups for one in group["versions"])


class ApiReader:
    """Reads with `api` until `deadline`, by the monotonic clock."""

    def __init__(self, api: ClusterApi, deadline: float, groups: Collection[tuple[str, str]] = ()) -> None:
        self._api = api
        self._deadline = deadline
        self._groups = groups
        self._slots = threading.Semaphore(_AT_ONCE)

    def serves(self, resource: Resource) -> bool:
        """Whether the server has the resource's group; true where that is not known."""
        return bool(resource.served(self._groups))

    def read(self, reads: Sequence[Read]) -> tuple[Answer, ...]:
        """The answers in the order of `reads`. One that is not there at the deadline is a time-out."""
        calls = [BackgroundCall(partial(self._answer, one), "latdoctor-kubernetes") for one in reads]
        return tuple(self._outcome(call) for call in calls)

    def _outcome(self, call: BackgroundCall[Answer]) -> Answer:
        if not call.wait(max(0.0, self._deadline - time.monotonic())):
            return ApiError(NO_ANSWER, "the API server did not answer in time", "", no_answer=NoAnswer.TIMEOUT)
        return call.outcome()

    def _answer(self, read: Read) -> Answer:
        error = ApiError(NOT_FOUND, "the API server does not have it", read.resource.plural)
        with self._slots:
            for version in read.resource.served(self._groups):
                try:
                    return self._objects(read, version)
                except ApiError as failed:
                    error = failed
                if error.status != NOT_FOUND or read.name:
                    break  # another version would be refused as well
        return error

    def _objects(self, read: Read, version: str) -> Objects:
        """Raises ApiError."""
        path = read.resource.path(version, read.namespace, read.name)
        if read.name:
            return Objects((trimmed(self._get(path, read.query), read.resource.kind),), version=version)
        found: list[Object] = []
        query = {**read.query, "limit": str(PAGE)}
        for page in range(PAGES):
            try:
                answer = self._get(path, query)
            except ApiError as error:
                if error.status == GONE and page:  # the list changed for too long: what was read is a part of it
                    return Objects(tuple(found), is_whole=False, version=version)
                raise
            found += [trimmed(one, read.resource.kind) for one in answer.get("items") or ()]
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return Objects(tuple(found), version=version)
            query["continue"] = following
        return Objects(tuple(found), is_whole=False, version=version)

    def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An answer; asked again where the server is overloaded, when it wants to be. Raises ApiError."""
        for _ in range(_TRIES - 1):
            try:
                return self._api.get(path, **query)
            except ApiError as error:
                again = _AGAIN_AFTER if error.retry_after is None else error.retry_after
                if error.status != TOO_MANY_REQUESTS or time.monotonic() + again > self._deadline:
                    raise
                threading.Event().wait(again)
        return self._api.get(path, **query)
