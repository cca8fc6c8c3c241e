"""A metrics page as typed values: what an exporter said, before anyone knows what it means."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.evidence.model import Labels


class MetricSample(Struct, frozen=True, gc=False):
    """One line of a page. `whole` tells that the number was written without a fraction (87, not 87.0)."""

    labels: Labels
    value: float
    whole: bool = False
    timestamp: float | None = None  # unix seconds, where the exporter wrote one

    def label(self, name: str) -> str:
        """The value of the label `name`; empty where absent, which the format takes for the same."""
        return next((value for key, value in self.labels if key == name), "")


class BadLine(Struct, frozen=True):
    """A line that could not be read: its number, from 1, and the sample's name where as much could be read."""

    line: int
    name: str = ""


class MetricsPage(Struct, frozen=True):
    """The samples of a page by name (`x_bucket`, `x_sum`, as written), and the kinds of its families by family name.

    A family may be declared (`# TYPE`) and have no sample; a sample may belong to no declared family.
    """

    samples: dict[str, tuple[MetricSample, ...]]
    kinds: dict[str, str] = {}
    bad_lines: tuple[BadLine, ...] = ()
    unended: BadLine | None = None  # the last line, where no newline ends it: its number may be half a number

    @property
    def cut(self) -> bool:
        """Does the page end within a line, so that others may be missing behind it?"""
        return self.unended is not None and self.unended in self.bad_lines

    @property
    def names(self) -> tuple[str, ...]:
        """Families and samples in the page's order."""
        return tuple(dict.fromkeys([*self.kinds, *self.samples]))

    @property
    def timestamp(self) -> float | None:
        """The latest of the samples' own times, where every sample has one (a federated page); else None."""
        latest: float | None = None
        for samples in self.samples.values():
            for sample in samples:
                if sample.timestamp is None:
                    return None
                latest = sample.timestamp if latest is None else max(latest, sample.timestamp)
        return latest


class ScrapedPage(Struct, frozen=True):
    """A page with its artifact's name and the unix time it speaks of; None where that is not known."""

    page: MetricsPage
    artifact: str
    at: float | None = None
