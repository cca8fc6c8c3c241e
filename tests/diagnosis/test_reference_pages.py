"""The incident of the reference server, from its own metrics page to the answer."""

from __future__ import annotations

from pathlib import Path

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.detectors import derive
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_loader import shipped as rules
from latdoctor.dialects.loader import shipped as dialects
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import Window

PAGES = Path(__file__).parents[1] / "dialects" / "pages"


def answer(dialect: str, *names: str) -> Diagnosis:
    (spoken,) = (one for one in dialects() if one.id == dialect)
    files = [PAGES / dialect / f"{name}.prom" for name in names]
    scrapes = [
        ScrapedPage(parse(path.read_bytes(), path.name), path.name, 1000.0 + 10 * n) for n, path in enumerate(files)
    ]
    evidence = derive(read_pages(spoken, scrapes, "server/x"))
    return diagnose(Case(Context("x", slo_p99=0.5), Window(), evidence, {}), rules(), Stamp("a", ""))


def test_the_page_alone_names_both_causes() -> None:
    diagnosis = answer("reference", "first", "last")
    assert set(diagnosis.answer.causes) == {"app.batching.long-alone", "framework.alloc.storm"}
    assert diagnosis.verdict.level == "critical"
    assert [one.confidence for one in diagnosis.causes if one.named] == ["confirmed", "confirmed"]


def test_before_it_nothing_fires() -> None:
    diagnosis = answer("reference", "first")
    assert not [check.id for check in diagnosis.checks if check.status == "fired"]


def test_gpu_findings_do_not_apply_to_a_server_on_the_processor() -> None:
    status = {check.id: check.status for check in answer("reference", "first", "last").checks}
    assert status["gpu-clocks-cut"] == "not-applicable"


def test_a_router_shows_the_hot_replica() -> None:
    assert answer("reference-router", "first", "last").answer.causes == ("app.balance.hot-replica",)
