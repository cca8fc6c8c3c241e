"""The server's metrics page as numbers, and what happened between two of them: the lab's own view of a phase."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from latdoctor.errors import OperationError

MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """Sums over all labels, by sample name; `_bucket` samples are left out."""

    at: float  # monotonic seconds
    values: Mapping[str, float]


def scrape(base: str, at: float, timeout: float = 5.0) -> Page:
    """The page of the server at `base`. Raises OperationError where it does not answer."""
    try:
        with urllib.request.urlopen(f"{base}/metrics", timeout=timeout) as answer:  # noqa: S310 — our own server
            text = answer.read(MAX_BYTES).decode()
    except (OSError, urllib.error.URLError, UnicodeDecodeError) as error:
        raise OperationError(f"the server's metrics page cannot be read: {error}", where=base) from error
    return Page(at, _values(text))


def _values(text: str) -> Mapping[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@dataclass(frozen=True, slots=True)
class Between:
    """What the counters of two pages say of the time between them."""

    first: Page
    last: Page

    def rise(self, name: str) -> float:
        """How much a counter rose; 0 for one that neither page shows."""
        return self.last.values.get(name, 0.0) - self.first.values.get(name, 0.0)

    def per(self, name: str, other: str) -> float | None:
        """Rise over rise; None where the divisor did not move."""
        below = self.rise(other)
        return self.rise(name) / below if below > 0 else None

    def mean(self, histogram: str) -> float | None:
        """Mean of a histogram's observations between the pages."""
        return self.per(f"{histogram}_sum", f"{histogram}_count")

    @property
    def waste(self) -> float | None:
        """Padding over all tokens computed."""
        padded = self.rise("ref_padded_tokens_total")
        return 1 - self.rise("ref_tokens_total") / padded if padded > 0 else None
