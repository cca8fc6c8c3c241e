"""From a bundle to its diagnosis: the stages put together, for every command that needs an answer."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from latdoctor import pipeline
from latdoctor.cli.console import notice_console, progress, progress_line
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.request import Looked, Need, Source, ask, must_have_read
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


def look_now(given: SourceOptions) -> Bundle:
    """One look at what was asked for, with its progress on stderr."""
    return look_for(given).bundle


def look_for(given: SourceOptions, need: Need = Need.DUE) -> Looked:
    """The same, with the sources that were named."""
    wanted = ask(given, need)
    if wanted.notice:
        notice_console().print(wanted.notice)
    request = wanted.request
    live = bool(request.servers or request.nvml or request.host)
    if request.servers and len(wanted.named) == len(request.servers):
        request = replace(request, leader="prometheus")  # this machine is sampled only because of its servers
    what = f"watching for {request.window:g} s" if live else "reading"
    with progress(what, takes_time=live) as waiting:
        bundle = collect_bundle(
            COLLECTORS, request, wanted.context, SystemClock(), baseline=wanted.baseline, waiting=waiting
        )
    return Looked(bundle, wanted.named)


def seen(bundle: Bundle) -> tuple[Evidence, tuple[Coverage, ...]]:
    """Everything a bundle says, derived readings included, with its progress on stderr."""
    with progress_line() as tell, progress_listener(tell):
        return pipeline.seen(bundle)


def compared() -> frozenset[str]:
    """The signals that shipped rules compare with a baseline."""
    comparing = (comparison for finding in rule_set(()).findings for comparison in comparisons(finding.when))
    return frozenset(
        comparison.left.signal
        for comparison in comparing
        if isinstance(comparison.right, Reference) and comparison.right.of == "baseline"
    )


def the_diagnosis(bundle: Bundle, rules: RuleSet, asked: tuple[Source, ...] = ()) -> Diagnosis:
    """The diagnosis of `bundle` by `rules`. Raises OperationError where none of `asked` could be read."""
    return diagnose(the_case(bundle, asked), rules, stamp())


def the_case(bundle: Bundle, asked: tuple[Source, ...] = ()) -> Case:
    """All that a diagnosis of `bundle` starts from. Raises OperationError where none of `asked` could be read."""
    evidence, coverage = seen(bundle)
    must_have_read(Looked(bundle, asked), evidence, otherwise="so there is nothing to diagnose")
    return pipeline.case(bundle, evidence, coverage)


def stamp() -> Stamp:
    """A new run's id and its moment."""
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
