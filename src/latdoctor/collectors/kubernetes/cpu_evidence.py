"""The counters of a node's cAdvisor as evidence of the cluster's own containers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from latdoctor.collectors.kubernetes import NAME
from latdoctor.collectors.kubernetes.cpu_counters import PART
from latdoctor.collectors.kubernetes.resources import CPU_COUNTERS
from latdoctor.collectors.prometheus import exposition
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode

DIALECT = "cadvisor"


def is_counters(artifact: Artifact) -> bool:
    return artifact.source.rpartition("/")[2].startswith(f"{PART} ")


def cpu_evidence(artifacts: Sequence[Artifact], cluster: str) -> Evidence:
    """What grew between the first and the last page of each node. Raises SourceError for a damaged page."""
    by_node: dict[str, list[Artifact]] = {}
    for one in sorted(artifacts, key=lambda one: one.taken_at):
        by_node.setdefault(one.source.rpartition(" ")[0], []).append(one)
    return Evidence.merge([_of_node(pages, cluster) for pages in by_node.values()])


def _of_node(artifacts: Sequence[Artifact], cluster: str) -> Evidence:
    if len(artifacts) < 2:
        reason = f"{artifacts[0].source}: read once only, which shows no growth of its counters"
        origin = Origin(artifacts[0].name)
        return Evidence(gaps=(Gap(NAME, reason, CPU_COUNTERS, origin=origin, code=GapCode.INSUFFICIENT),))
    pages = [(one, exposition.parse(one.read(exposition.MAX_BYTES), one.source)) for one in artifacts]
    # cAdvisor's counters are as old as it says, by the node's clock.
    times = [page.timestamp for _, page in pages]
    first, last = times[0], times[-1]
    ends = artifacts[-1].taken_at
    began = artifacts[0].taken_at if first is None or last is None or last <= first else ends - (last - first)
    scrapes = [ScrapedPage(page, one.name, at) for (one, page), at in zip(pages, (began, ends), strict=True)]
    dialect = next(one for one in shipped() if one.id == DIALECT)
    found = read_pages(dialect, scrapes, f"server/{cluster}", NAME)
    # Its Pods are known by name from the API; other signals are not on what was kept of the page.
    return Evidence(
        readings=tuple(one for one in found.readings if one.signal in CPU_COUNTERS),
        gaps=tuple(
            structs.replace(one, signals=tuple(signal for signal in one.signals if signal in CPU_COUNTERS))
            for one in found.gaps
            if any(signal in CPU_COUNTERS for signal in one.signals)
        ),
    )
