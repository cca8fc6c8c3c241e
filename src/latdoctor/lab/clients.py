"""The servers' metrics pages as numbers, and what happened between two looks at them: the lab's own view of a phase."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.sanitize import clean


def typed_knobs(knobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """`knobs` with each value of its own type. Raises UsageError for an unknown one or a bad value."""
    whole = msgspec.to_builtins(patched(ServerConfig(), knobs, strict=False))
    return {group: {name: whole[group][name] for name in values} for group, values in knobs.items()}


TIMEOUT = 10.0  # seconds
CONFLICT = 409
CHANGED = 412
ATTEMPTS = 3  # somebody else may turn a knob between reading and writing


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
        """Headers (in lower case) and body of the answer. Raises OperationError, AdminRefusedError for no 2xx."""
        request = urllib.request.Request(  # noqa: S310 — an address that the user gave, or our own process
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={**self.headers, "Content-Type": "application/json", **(headers or {})},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
                return {key.lower(): value for key, value in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            raise AdminRefusedError(
                error.code, error.read().decode(errors="replace"), f"{method} {self.url}{path}"
            ) from error
        except OSError as error:
            raise OperationError(f"the admin interface does not answer: {error}", where=self.url) from error


class AdminRefusedError(OperationError):
    """The admin interface said no, with this status."""

    def __init__(self, status: int, said: str, where: str) -> None:
        super().__init__(f"the admin interface answered {status}: {clean(said, 300)}", where=where)
        self.status = status


MAX_BYTES = 8 << 20


class MetricsPage(Struct, frozen=True):
    """Sums over all labels, by sample name; `_bucket` samples are left out."""

    values: Mapping[str, float]


class MetricsSnapshot(Struct, frozen=True):
    """The pages of all servers at one time, by address; a server that did not answer has none."""

    pages: Mapping[str, MetricsPage]


def collect_metrics(addresses: Sequence[str], timeout: float = 5.0) -> MetricsSnapshot:
    """Raises OperationError where none of the servers answers."""
    pages, failures = {}, []
    for address in addresses:
        try:
            pages[address] = scrape(address, timeout)
        except OperationError as error:
            failures.append(error)
    if failures and not pages:
        raise failures[0]
    return MetricsSnapshot(pages)


def scrape(base: str, timeout: float = 5.0) -> MetricsPage:
    """The page of the server at `base`. Raises OperationError where it does not answer."""
    try:
        with urllib.request.urlopen(f"{base}/metrics", timeout=timeout) as answer:  # noqa: S310 — our own server
            text = answer.read(MAX_BYTES).decode()
    except (OSError, urllib.error.URLError, UnicodeDecodeError) as error:
        raise OperationError(f"the server's metrics page cannot be read: {error}", where=base) from error
    return MetricsPage(_values(text))


def _values(text: str) -> Mapping[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


class MetricsDelta(Struct, frozen=True):
    """What the counters of two looks say of the time between them, over all servers."""

    first: MetricsSnapshot
    last: MetricsSnapshot

    def rise(self, name: str) -> float:
        """How much a counter rose, 0 for one that nobody shows; one that fell was begun anew by a new process."""
        total = 0.0
        for address, page in self.last.pages.items():
            before = self.first.pages[address].values.get(name, 0.0) if address in self.first.pages else 0.0
            after = page.values.get(name, 0.0)
            total += after - before if after >= before else after
        return total

    def per(self, name: str, other: str) -> float | None:
        """Rise over rise; None where the divisor did not move."""
        below = self.rise(other)
        return self.rise(name) / below if below > 0 else None

    def mean(self, histogram: str) -> float | None:
        """Mean of a histogram's observations between the looks."""
        return self.per(f"{histogram}_sum", f"{histogram}_count")

    def now(self, gauge: str) -> float | None:
        """The sum of a gauge over the servers at the last look; None where nobody shows it."""
        shown = [page.values[gauge] for page in self.last.pages.values() if gauge in page.values]
        return sum(shown) if shown else None

    @property
    def waste(self) -> float | None:
        """Padding over all tokens computed."""
        padded = self.rise("ref_padded_tokens_total")
        return 1 - self.rise("ref_tokens_total") / padded if padded > 0 else None
