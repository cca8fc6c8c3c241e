"""Snapshots of the servers' metrics pages, and the difference between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, send_request
from latdoctor.http.failure import RequestFailure

MAX_PAGE = 64 << 20  # bytes


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
    """The page of the server at `base`. Raises OperationError if it does not answer."""
    response = send_request(HttpRequest("GET", f"{base}/metrics", {}, reads=True, limit=MAX_PAGE), timeout)
    if isinstance(response, RequestFailure) or response.failure is not None:
        raise OperationError(f"the server's metrics page {response.why}", where=base)
    return MetricsPage(_values(response.body.decode(errors="replace")))


def _values(text: str) -> Mapping[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


class MetricsDelta(Struct, frozen=True):
    """StateDifference between two snapshots, over all servers."""

    first: MetricsSnapshot
    last: MetricsSnapshot

    def rise(self, name: str) -> float:
        """Increase of a counter, 0 if no server has it; a counter that fell was reset by a restart."""
        total = 0.0
        for address, page in self.last.pages.items():
            before = self.first.pages[address].values.get(name, 0.0) if address in self.first.pages else 0.0
            after = page.values.get(name, 0.0)
            total += after - before if after >= before else after
        return total

    def per(self, name: str, other: str) -> float | None:
        """Rise over rise; None where the divisor did not rise."""
        below = self.rise(other)
        return self.rise(name) / below if below > 0 else None

    def mean(self, histogram: str) -> float | None:
        """Mean of a histogram's observations between the snapshots."""
        return self.per(f"{histogram}_sum", f"{histogram}_count")

    def now(self, gauge: str) -> float | None:
        """Sum of a gauge over the servers in the last snapshot; None if no server has it."""
        shown = [page.values[gauge] for page in self.last.pages.values() if gauge in page.values]
        return sum(shown) if shown else None

    @property
    def waste(self) -> float | None:
        """Padding over all tokens computed."""
        padded = self.rise("ref_padded_tokens_total")
        return 1 - self.rise("ref_tokens_total") / padded if padded > 0 else None
