"""Pages for tests: an incident with samples, looks, a run and stages, and any text in all that comes from outside."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from latdoctor import case_from_bundle
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.model import Evidence
from latdoctor.incident import events
from latdoctor.incident.sop.clock import StageState
from latdoctor.incident.timeline import timeline
from latdoctor.incident.timeline_model import Timeline
from latdoctor.report.html import diagnosis_page, incident_page
from latdoctor.report.html.page_inputs import AFTER, AT_WORST, BEFORE, ONLY, Snapshot
from latdoctor.report.html.page_model import Page
from tests.incident.scenarios import BEGAN, promo_rush

INCIDENTS = Path(__file__).parents[2] / "fixtures" / "incidents"


@cache
def looked(name: str) -> tuple[Diagnosis, Evidence]:
    """What is seen in a saved incident, and its diagnosis."""
    with opened(INCIDENTS / name) as bundle:
        evidence, coverage = case_from_bundle.seen(bundle)
        case = case_from_bundle.case(bundle, evidence, coverage)
        return diagnose(case, shipped(), Stamp("d1a9", "2026-11-22T06:50:10+00:00")), evidence


def told(text: str = "") -> Timeline:
    """A rush that is sampled every five seconds, with two stages of its SOP."""
    log = promo_rush(text)
    closed = log.entries.pop()
    for at in range(141, 200, 5):
        values = {f"service{text}": {"latency.p50": 0.1, "latency.p99": 0.3, "queue.depth": 2.0, "alloc.reserved": 2e9}}
        log.add(at, events.SAMPLED, events.ServiceSampled(5.0, values, 400.0, 0.0, 0.5))
    log.add(205, closed.kind, msgspec.json.decode(bytes(closed.body)))
    stages = (
        StageState("confirmed", f"the alert is confirmed{text}", 60.0, "met", "2026-11-22T06:49:29Z", 29.0, 31.0),
        StageState("mitigated", f"it is mitigated{text}", 1800.0, "unmet", why=f"nothing verified{text}"),
    )
    return timeline(log.incident, stages)


def looks() -> tuple[Snapshot, ...]:
    calm, rush = looked("no-fault.tar.zst"), looked("promo-rush.tar.zst")
    return (
        Snapshot(BEFORE, *calm, 0.5, BEGAN),
        Snapshot(AT_WORST, *rush, 0.5, BEGAN + 70),
        Snapshot(AFTER, *calm, 0.5, BEGAN + 200),
    )


def incident(text: str = "") -> Page:
    """A page with everything on it."""
    return incident_page.of_incident(told(text), tuple(hostile(look, text) for look in looks()))


def hostile(look: Snapshot, text: str) -> Snapshot:
    """The same look with `text` in what its diagnosis took from outside."""
    if not text or look.diagnosis is None:
        return look
    found = look.diagnosis
    causes = tuple(
        msgspec.structs.replace(
            cause,
            title=cause.title + text,
            subjects=tuple(subject + text for subject in cause.subjects),
            contributions=tuple(
                msgspec.structs.replace(row, message=row.message + text) for row in cause.contributions
            ),
        )
        for cause in found.causes
    )
    checks = tuple(msgspec.structs.replace(check, message=check.message + text) for check in found.checks)
    gaps = tuple(msgspec.structs.replace(gap, reason=gap.reason + text) for gap in found.gaps)
    changed = msgspec.structs.replace(found, target=found.target + text, causes=causes, checks=checks, gaps=gaps)
    return Snapshot(look.name, changed, look.evidence, look.slo_p99, look.time, f"something is missing{text}")


def diagnosis(name: str = "promo-rush.tar.zst") -> Page:
    found, evidence = looked(name)
    return diagnosis_page.of_diagnosis(found, (Snapshot(ONLY, found, evidence, 0.5, BEGAN),))
