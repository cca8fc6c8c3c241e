"""Collecting, parsing and diagnosing with progress on stderr, for every command that needs an answer."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from latdoctor import case_from_bundle
from latdoctor.cli.console import notice_console, progress, progress_line
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import BaselineNeed, CollectedEvidence, Source, check_sources_read, resolve_request
from latdoctor.cli.several_services import check_one_service
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import progress_listener
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.conditions.ast import Reference, comparisons
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import SEVERITIES, RuleSet
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Coverage, Evidence
from latdoctor.resources import folder

OK, FOUND, INCONCLUSIVE = 0, 3, 4


def rule_set(extra: Sequence[Path]) -> RuleSet:
    """The shipped rules, with the user's own folders beside them. Raises DefinitionError."""
    return rule_loader.read([folder("rules"), *extra]) if extra else rule_loader.shipped()


def collect_bundle_now(sources: SourceOptions) -> Bundle:
    """Collect the requested sources, with progress on stderr."""
    return collect_evidence(sources).bundle


def collect_evidence(sources: SourceOptions, need: BaselineNeed = BaselineNeed.REQUIRED) -> CollectedEvidence:
    """The same, together with the named sources."""
    resolved = resolve_request(sources, need)
    check_one_service(resolved)
    if resolved.notice:
        notice_console().print(resolved.notice)
    request = resolved.request
    live = bool(request.servers or request.nvml or request.host or request.kubernetes)
    if request.servers and len(resolved.named) == len(request.servers):
        request = replace(request, leader="prometheus")  # this machine is sampled only because of its servers
    what = f"observing for {request.window:g} s" if live else "reading"
    with progress(what, takes_time=live) as waiting:
        bundle = collect_bundle(
            COLLECTORS, request, resolved.context, SystemClock(), baseline=resolved.baseline, waiting=waiting
        )
    return CollectedEvidence(bundle, resolved.named)


def seen(bundle: Bundle) -> tuple[Evidence, tuple[Coverage, ...]]:
    """Parse a bundle and derive readings, with progress on stderr."""
    with progress_line() as show, progress_listener(show):
        return case_from_bundle.seen(bundle)


def compared() -> frozenset[str]:
    """The signals that shipped rules compare with a baseline."""
    comparing = (comparison for finding in rule_set(()).findings for comparison in comparisons(finding.when))
    return frozenset(
        comparison.left.signal
        for comparison in comparing
        if isinstance(comparison.right, Reference) and comparison.right.of == "baseline"
    )


def diagnosis_of(bundle: Bundle, rules: RuleSet, requested: tuple[Source, ...] = ()) -> Diagnosis:
    """Diagnose `bundle` by `rules`. Raises OperationError where no requested source could be read."""
    return diagnose(case_of(bundle, requested), rules, stamp())


def case_of(bundle: Bundle, requested: tuple[Source, ...] = ()) -> Case:
    """The input of a diagnosis of `bundle`. Raises OperationError where no requested source could be read."""
    evidence, coverage = seen(bundle)
    collected = CollectedEvidence(bundle, requested)
    check_sources_read(collected, evidence, outage=True, consequence="so there is nothing to diagnose")
    return case_from_bundle.case(bundle, evidence, coverage)


def stamp() -> Stamp:
    """The id and time of a new diagnosis."""
    return Stamp(uuid.uuid4().hex[:12], now())


def now() -> str:
    """RFC 3339 UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    """3 at or above `fail_on`, 4 where the verdict is inconclusive, else 0."""
    if fail_on in SEVERITIES:
        levels = [diagnosis.verdict.level, *(cause.severity for cause in diagnosis.causes if cause.named)]
        if any(SEVERITIES.index(level) >= SEVERITIES.index(fail_on) for level in levels if level in SEVERITIES):
            return FOUND
    return INCONCLUSIVE if diagnosis.verdict.level == "inconclusive" else OK
