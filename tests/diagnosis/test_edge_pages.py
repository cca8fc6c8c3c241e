"""An edge tier that is lost or overloaded, from the pages of a real router to the answer."""

from __future__ import annotations

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.detectors import derive
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.rule_loader import shipped as rules
from latdoctor.dialects.loader import shipped as dialects
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import Window
from latdoctor.lab.faults.edge_agent import attach
from latdoctor.lab.server.load_balancing import RouterConfig
from tests.lab.router.cluster import Cluster, cluster, run
from tests.lab.router.test_edge_tier import LET_IN, SHORT, intent, version

REQUESTS = 8  # of either kind, in ten seconds of the pages' time


def causes(before: str, after: str) -> tuple[str, ...]:
    (spoken,) = (one for one in dialects() if one.id == "reference-router")
    scrapes = [
        ScrapedPage(parse(page.encode(), f"{number}.prom"), f"{number}.prom", 1000.0 + 10 * number)
        for number, page in enumerate((before, after))
    ]
    evidence = derive(read_pages(spoken, scrapes, "server/router"))
    return diagnose(Case(Context("x", slo_p99=0.5), Window(), evidence, {}), rules(), Stamp("a", "")).answer.causes


async def lose(found: Cluster) -> None:
    async with found.session.put("/faults/edge-route", json={}, headers=LET_IN) as answer:
        assert answer.status == 204


async def slow_down(found: Cluster) -> None:
    """Half of the requests are answered, the other half is too late."""
    for _ in range(REQUESTS):
        await intent(found, SHORT)
    await version(found, "e", "slow")


async def nothing(found: Cluster) -> None:
    """The edge is well."""


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(nothing, ()), (lose, ("app.edge.lost",)), (slow_down, ("app.edge.overloaded",))],
    ids=["well", "lost", "overloaded"],
)
def test_the_page_of_the_router_names_what_is_wrong_with_its_edge(fault: object, expected: tuple[str, ...]) -> None:
    assert callable(fault)

    async def test() -> None:
        config = RouterConfig(slow_start_ms=0, edge_timeout_ms=100)
        async with cluster("a", config=config, edge=("e",), edge_agent=attach) as found:
            before = await found.metrics()
            await fault(found)
            for _ in range(REQUESTS):
                await intent(found, SHORT)
            after = await found.metrics()
            async with found.session.delete("/faults/edge-route", headers=LET_IN) as answer:
                assert answer.status == 204
            assert causes(before, after) == expected

    run(test)
