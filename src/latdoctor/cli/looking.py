"""What `remediate` looks with: the same collectors and findings as a diagnosis, for a window of its choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from latdoctor import __version__, answering
from latdoctor.cli.addresses import origin
from latdoctor.cli.asking import Ask
from latdoctor.collect import COLLECTORS
from latdoctor.collect.look import SystemClock, look
from latdoctor.collect.source import Request
from latdoctor.diagnosis.diagnose import slo_terms
from latdoctor.diagnosis.judge import judge
from latdoctor.diagnosis.rules import RuleSet
from latdoctor.errors import OperationError, UsageError
from latdoctor.evidence import redacting
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import save
from latdoctor.evidence.judging import Facts
from latdoctor.evidence.redact import Redactor
from latdoctor.remedy.observation import Observation, Observe
from latdoctor.remedy.target import Target


def observer(wanted: Ask, rules: RuleSet, target: Target) -> Observe:
    """Looks at what `wanted` asks for, again and again, each time for as long as it is told.

    Only at what shows the present: a history or a log would bring samples from before the change. Of a server among
    several only its own page: what its siblings do tells nothing of its change. Raises UsageError where nothing of
    that kind was given.
    """
    own = tuple(url for url in wanted.request.servers if origin(url) == target.admin and target.kind == "reference")
    live = Request(
        servers=own or wanted.request.servers,
        nvml=wanted.request.nvml,
        host=wanted.request.host,
        pid=wanted.request.pid,
    )
    if not live.servers:
        raise UsageError(
            "nothing shows whether a change helps", next_step="give the server's metrics page: --server URL"
        )

    def observe(seconds: float) -> Observation:
        request = replace(live, window=seconds)
        bundle = look(COLLECTORS, request, wanted.context, SystemClock(), baseline=wanted.baseline)
        return observation(bundle, rules)

    return observe


def observation(bundle: Bundle, rules: RuleSet) -> Observation:
    """What a look says of signals and findings. Raises OperationError where it shows nothing at all."""
    evidence, _ = answering.seen(bundle)
    if not evidence.readings:
        why = evidence.gaps[0].reason if evidence.gaps else "no source showed anything"
        raise OperationError(f"nothing was seen: {why}")
    baseline = bundle.baseline.lookup if bundle.baseline else {}
    facts = Facts(evidence, slo_terms(bundle.context), baseline, {})
    checks = judge(rules, facts, ())
    return Observation(
        evidence=evidence,
        findings={check.id: check.status for check in checks},
        slo=facts.slo,
        started=bundle.window.start or 0.0,
        ended=bundle.window.end or 0.0,
        bundle=bundle,
        baseline=baseline,
    )


def kept(bundle: Bundle, path: Path) -> None:
    """Saves it, redacted. Raises OperationError, BundleError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperationError(
            f"what was seen cannot be kept: {error.strerror}", where=str(path.parent), next_step="free space there"
        ) from error
    redactor = Redactor()
    save(redacting.redacted(bundle, redactor), path, __version__, redactor)
