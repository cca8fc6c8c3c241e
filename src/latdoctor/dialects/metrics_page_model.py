"""A metrics page as typed values, before any dialect interprets it."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.evidence.model import Labels


class MetricSample(Struct, frozen=True, gc=False):
    """One line of a page. `whole` is true if the number was written without a fraction (87, not 87.0)."""

    labels: Labels
    value: float
    whole: bool = False
    timestamp: float | None = None  # unix seconds, where the exporter wrote one

    def label(self, name: str) -> str:
        """The value of label `name`; empty if absent, which the format treats as the same."""
        return next((value for key, value in self.labels if key == name), "")


class BadLine(Struct, frozen=True):
    """An unreadable line: its number from 1, and the sample name if that could be read."""

    line: int
    name: str = ""


class MetricsPage(Struct, frozen=True):
    """The samples of a page by name (`x_bucket`, `x_sum`, as written), and the types of its families by family name.

    A family may be declared (`# TYPE`) without a sample; a sample may belong to no declared family.
    """

    samples: dict[str, tuple[MetricSample, ...]]
    kinds: dict[str, str] = {}
    bad_lines: tuple[BadLine, ...] = ()
    unended: BadLine | None = None  # the last line if no newline ends it: its number may be truncated

    @property
    def cut(self) -> bool:
        """Whether the page ends within a line, so that further lines may be missing."""
        return self.unended is not None and self.unended in self.bad_lines

    @property
    def names(self) -> tuple[str, ...]:
        """Families and samples in page order."""
        return tuple(dict.fromkeys([*self.kinds, *self.samples]))

    @property
    def timestamp(self) -> float | None:
        """The latest sample timestamp if every sample has one (a federated page); otherwise None."""
        latest: float | None = None
        for samples in self.samples.values():
            for sample in samples:
                if sample.timestamp is None:
                    return None
                latest = sample.timestamp if latest is None else max(latest, sample.timestamp)
        return latest


class ScrapedPage(Struct, frozen=True):
    """A page with the name of its artifact and its unix time (None if unknown)."""

    page: MetricsPage
    artifact: str
    at: float | None = None
