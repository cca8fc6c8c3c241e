"""What a run of a playbook looks with: the same collectors and findings as a diagnosis, for a window of its choice.

And which playbook a diagnosis leads to. For the command and for the bench of remediation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from latdoctor import __version__
from latdoctor.collectors import COLLECTORS, promql
from latdoctor.collectors.base import Collector, CollectRequest, PrometheusServer
from latdoctor.collectors.prometheus.page_state import page_states
from latdoctor.collectors.runner import SystemClock, collect_bundle, parse_bundle
from latdoctor.conditions.evaluator import Facts
from latdoctor.detectors import derive
from latdoctor.detectors.level_shift import median_step
from latdoctor.diagnosis.diagnose import Case, slo_terms
from latdoctor.diagnosis.evaluate import Provider, judge
from latdoctor.diagnosis.named_subjects import named_subjects
from latdoctor.diagnosis.next_sources import playbooks_for
from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import BundleError, LatdoctorError, OperationError, SourceError, UsageError
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import NO_GPU, Bundle, Context
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import Coverage, Evidence, Gap, Origin, Reading
from latdoctor.gap_code import GapCode
from latdoctor.http.safe_address import is_loopback
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.remediation.history import History, ReadHistory
    from latdoctor.remediation.observation import Observation, Observe
    from latdoctor.remediation.planner import DiagnosisRef
    from latdoctor.remediation.target import Access, Pages

_KINDS_SHOWN = 5
_WORKLOADS = ("deployment", "statefulset")
_HISTORY, _JUDGED = 600.0, 60.0  # seconds before a change that are read, and of the last values in them
_GPU_SIGNALS = ("gpu.", "server.backend", "log.cpu_fallback", "log.no_gpu_found", "log.cuda_error", "log.xid")


def seen(bundle: Bundle, collectors: Sequence[Collector] = COLLECTORS) -> tuple[Evidence, tuple[Coverage, ...]]:
    """Everything a bundle says, derived readings included."""
    evidence, coverage = parse_bundle(collectors, bundle)
    stated = _configured(bundle.context) or _without_accelerator(bundle, evidence)
    own = Evidence(gaps=_unread(bundle), readings=stated)
    return derive(Evidence.merge([evidence, own])), coverage


def _configured(context: Context) -> tuple[Reading, ...]:
    """What the configuration says of the target that no source need show: that it computes without a GPU."""
    if context.gpu != NO_GPU:
        return ()
    where = Origin("configuration", "gpu: none")
    return (Reading("server.backend", "server/configuration", "cpu", where, note="as configured"),)


def _without_accelerator(bundle: Bundle, evidence: Evidence) -> tuple[Reading, ...]:
    """That a server on this machine computes without a GPU, because the machine has none.

    Not where anything speaks of a GPU: a server that wanted one and fell back is slow for that reason.
    """
    counted = next((one for one in evidence.readings if one.signal == "host.accelerators"), None)
    if counted is None or counted.value or not _is_here(bundle):
        return ()
    shown = {one.signal for one in evidence.readings} | {one.signal for one in evidence.series}
    if any(name.startswith(_GPU_SIGNALS) for name in shown | {event.signal for event in evidence.events}):
        return ()
    note = "this machine has no accelerator"
    return (Reading("server.backend", "server/local", "cpu", counted.origin, counted.window, note=note),)


def _is_here(bundle: Bundle) -> bool:
    """Whether all metrics pages are of this machine, and there is one."""
    pages = [artifact.source for artifact in bundle.artifacts if artifact.collector == "prometheus"]
    return bool(pages) and all(is_loopback(urlsplit(page).hostname or "") for page in pages)


def _unread(bundle: Bundle) -> tuple[Gap, ...]:
    """What is there and is of no kind that is known: a newer version may have written it."""
    known = {collector.name for collector in COLLECTORS}
    kinds = sorted({clean(one.collector, 40) for one in bundle.artifacts if one.collector not in known})
    if not kinds:
        return ()
    shown = ", ".join(kinds[:_KINDS_SHOWN]) + (" and more" if len(kinds) > _KINDS_SHOWN else "")
    step = "read it with the version that wrote it: its manifest says which"
    return (
        Gap(
            "bundle",
            f"artifacts of a kind that this version cannot read: {shown}",
            (),
            None,
            step,
            code=GapCode.UNSUPPORTED,
        ),
    )


def case(bundle: Bundle, evidence: Evidence, coverage: tuple[Coverage, ...]) -> Case:
    """What a diagnosis of `bundle` starts from; `evidence` is what is seen in it."""
    return Case(
        context=bundle.context,
        window=bundle.window,
        evidence=evidence,
        baseline=bundle.baseline.lookup if bundle.baseline else {},
        coverage=coverage,
        providers=tuple(
            Provider(c.name, c.option, c.cost, _shown(c)) for c in COLLECTORS if c.option and c.may_exist(evidence)
        ),
    )


def _shown(collector: Collector) -> frozenset[str]:
    """The signals that it provides, with those derived from its distributions (`latency` gives `latency.p99`)."""
    spread = tuple(f"{name}." for name in collector.assured if catalogue()[name].kind == SignalKind.DISTRIBUTION)
    return collector.assured | {name for name in catalogue() if name.startswith(spread)}


def observer(wanted: CollectRequest, context: Context, baseline: Baseline | None, rules: RuleSet) -> Observe:
    """Looks at what `wanted` asks for, again and again, each time for as long as requested.

    Only at what shows the present: a history or a log would bring samples from before the change.
    Raises UsageError where nothing of that kind was given.
    """
    live = CollectRequest(
        servers=wanted.servers, nvml=wanted.nvml, host=wanted.host, pid=wanted.pid, kubernetes=wanted.kubernetes
    )
    if not live.servers:
        raise UsageError(
            "nothing shows whether a change helps", next_step="give the server's metrics page: --server URL"
        )

    def observe(seconds: float) -> Observation:
        request = replace(live, window=seconds)
        bundle = collect_bundle(COLLECTORS, request, context, SystemClock(), baseline=baseline)
        return observation(bundle, rules)

    return observe


def history_of(server: PrometheusServer | None) -> ReadHistory:
    """Reads the last _HISTORY seconds from a Prometheus server; without one there is no history.

    Why it could not be read is the `source` of an empty history.
    """
    from latdoctor.remediation.history import History, no_history, of_series

    if server is None:
        return no_history

    def read(step: float) -> History:
        now = SystemClock().now()
        asked = replace(server, since=now - _HISTORY, until=now, window=_JUDGED, every=step)
        request = CollectRequest(prometheus=asked)
        found = promql.COLLECTOR.collect(request, SystemClock())
        if not found.artifacts:
            return History(source=found.gaps[0].message if found.gaps else server.access.name)
        try:
            series = promql.COLLECTOR.parse(found.artifacts).series
        except SourceError as error:
            return History(source=str(error))
        steps = [median_step(one.times) for one in series]
        return of_series(series, max(step, median(steps)) if steps else step, now, server.access.name)

    return read


def pages_for(access: Access, servers: Sequence[str], known: Mapping[str, str]) -> Pages:
    """The pages that show whether a change of this target helps: all but those of its siblings.

    A sibling says nothing about the change and would keep it from being verified. Only a server whose kind is
    not `known` (admin interface, as `canonical` spells it → kind) is asked for it.
    """
    from latdoctor.remediation.target import Pages, TargetKind

    if access.target.kind is TargetKind.KUBERNETES:  # no page is that of a workload's sibling
        return Pages(tuple(servers))
    siblings = tuple(url for url in servers if _sibling(url, access, known))
    return Pages(tuple(url for url in servers if url not in siblings), siblings)


def _sibling(url: str, access: Access, known: Mapping[str, str]) -> bool:
    """Whether another server of the target's kind has this page; it is sent no token, which belongs to the target."""
    from latdoctor.collectors.prometheus.discovery import dialects_at
    from latdoctor.http.client import Secret
    from latdoctor.remediation.target import Access, Target, TargetKind, canonical_url, detect_kind

    place = _origin(url)
    if canonical_url(place) == canonical_url(access.target.admin):
        return False
    if canonical_url(place) in known:
        return known[canonical_url(place)] == access.target.kind
    try:
        return detect_kind(Access(Target(place, TargetKind.UNKNOWN, admin=place), Secret())) == access.target.kind
    except LatdoctorError:
        return access.target.kind in dialects_at(url)  # the kinds of servers are named as their dialects


def _origin(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return f"{parts.scheme}://{parts.netloc}"


def observation(bundle: Bundle, rules: RuleSet) -> Observation:
    """What a look says of signals and findings. Raises OperationError where it shows nothing at all."""
    from latdoctor.remediation.observation import Observation

    evidence, _ = seen(bundle)
    if not evidence.readings:
        why = evidence.gaps[0].message if evidence.gaps else "no source showed anything"
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
        pages=page_states(bundle),
    )


def remedy_of(diagnosis: Diagnosis) -> tuple[str, DiagnosisRef] | None:
    """The playbook against all named causes together, else against the first that has one, and why; None without any.

    Where it is one of several causes, the first playbook that all of them have: it fixes whichever it is.
    """
    named = [cause for cause in diagnosis.causes if cause.named]
    for playbook in playbooks_for(named, diagnosis)[:1]:
        cause = next(cause for cause in named if playbook in cause.playbooks)
        return playbook, because(diagnosis, cause, cause.probability)
    if diagnosis.answer.kind == "one-of":
        several = [cause for cause in diagnosis.causes if cause.id in diagnosis.answer.causes]
        for playbook in several[0].playbooks if several else ():
            if all(playbook in cause.playbooks for cause in several):
                ramp = min(1.0, sum(cause.probability for cause in several))
                return playbook, because(diagnosis, several[0], ramp)
    return None


def because(diagnosis: Diagnosis, cause: RankedCause, probability: float) -> DiagnosisRef:
    """Why a plan is made: what is remembered of the diagnosis that named `cause`."""
    from latdoctor.remediation.planner import DiagnosisRef
    from latdoctor.remediation.target import host_and_port

    seen = diagnosis.evidence_window.end or diagnosis.window.end or 0.0
    subjects = {name for one in diagnosis.causes for name in one.subjects}
    subjects |= {name for one in diagnosis.checks for name in one.subjects}
    # A diagnosis of pages is called by the first of them: `a:8000 and 1 more`.
    named = [diagnosis.target.split(" ")[0], *(name.rpartition("@")[2] for name in subjects if "@" in name)]
    places = {host_and_port(f"{scheme}://{name}") for name in named for scheme in ("http", "https")}
    return DiagnosisRef(
        run_id=diagnosis.run_id,
        cause=cause.id,
        probability=probability,
        evidence_end=seen,
        target=diagnosis.target,
        subjects=cause.subjects,
        servers=tuple(sorted(places - {""})),
        named=named_subjects(cause, diagnosis),
        workloads=tuple(sorted(filter(None, map(_workload, subjects)))),
    )


def _workload(subject: str) -> str:
    """`prod/deployment/chat@lab` of `deployment/prod/chat@lab`; empty for what is no workload that can be changed."""
    kind, _, rest = subject.partition("/")
    namespace, _, name = rest.partition("/")
    return f"{namespace}/{kind}/{name}" if kind in _WORKLOADS and name else ""


def kept(bundle: Bundle, path: Path) -> None:
    """Saves it, redacted. Raises OperationError."""
    from latdoctor.evidence.bundle_files import save
    from latdoctor.evidence.redaction import bundle as redacting
    from latdoctor.evidence.redaction.redactor import Redactor

    redactor = Redactor()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        save(redacting.redacted(bundle, redactor), path, __version__, redactor)
    except (OSError, BundleError) as error:
        why = error.what if isinstance(error, BundleError) else error.strerror
        raise OperationError(
            f"what was seen cannot be kept: {why}",
            where=str(path.parent),
            next_step="free space there, or name another folder in LATDOCTOR_STATE",
        ) from error
