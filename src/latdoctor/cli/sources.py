"""What was asked for, and whether it could be read: a look that brought nothing must not pass for an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.cli.addresses import masked, server
from latdoctor.cli.saying import say
from latdoctor.collect import COLLECTORS
from latdoctor.collect.source import Request
from latdoctor.collect.streams import is_stream, shown_name
from latdoctor.errors import OperationError
from latdoctor.evidence import redacting
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.evidence.redact import Redactor
from latdoctor.text import clean

_SHOWN = 20
# Who makes something of what was given for a collector: an access log is a log too.
_SHARED = {"logs": ("logs", "access_log")}
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Source:
    """One source that the user named. `place` is how its artifacts call it; empty: all of the collector's are its."""

    collector: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """A look, and the sources that were named for it (none where this machine was looked at by itself)."""

    bundle: Bundle
    asked: tuple[Source, ...] = ()


def named(request: Request, *, nvml: bool) -> tuple[Source, ...]:
    """The sources that `request` names; `nvml`: the GPU driver was asked for, not only taken along."""
    return (
        *(Source("prometheus", server(url).shown) for url in request.servers),
        *(Source("prometheus", clean(_called(path, path.name), 200)) for path in request.metrics),
        *([Source("promql", request.prometheus.access.url)] if request.prometheus else []),
        *(Source("torch_trace", clean(str(path))) for path in request.traces),
        *(Source("nsight", clean(str(path))) for path in request.nsight),
        *(Source("tensorrt", clean(str(path))) for path in request.tensorrt),
        *(Source("torch_memory", clean(str(path))) for path in request.torch_memory),
        *(Source("logs", clean(_called(path, str(path)))) for path in request.logs),
        *(Source("changes", clean(_called(path, str(path)))) for path in request.changes),
        *([Source("host")] if request.pid is not None else []),
        *([Source("nvml"), Source("host")] if nvml else []),  # `--nvml` is a look at this machine
    )


def redacted(looked: Looked, redactor: Redactor) -> Looked:
    """The look with its bundle redacted; what was asked for is called as its artifacts are then."""
    asked = tuple(Source(one.collector, redactor.text(one.place)) for one in looked.asked)
    return Looked(redacting.redacted(looked.bundle, redactor), asked)


def _called(path: Path, name: str) -> str:
    """What a collector calls this file, which is `name`, or this pipe."""
    return shown_name(path) if is_stream(path) else name


def unread(looked: Looked, evidence: Evidence) -> tuple[Source, ...]:
    """The named sources that brought nothing, or nothing that makes sense."""
    return tuple(source for source in looked.asked if not _was_read(source, looked.bundle, evidence))


def must_have_read(looked: Looked, evidence: Evidence, *, every: bool = False, otherwise: str) -> None:
    """Raises OperationError where none of the named sources could be read, or (`every`) one could not.

    The reasons go to stderr first; `otherwise` is what was not done for that.
    """
    failed = unread(looked, evidence)
    if not failed or (len(failed) < len(looked.asked) and not every):
        return
    gaps = [gap for source in failed for gap in _gaps_of(source, looked.bundle, evidence)]
    tell(gaps)
    next_step = next((gap.next_step for gap in gaps if gap.next_step), "latdoctor preflight")
    if len(failed) == len(looked.asked):
        raise OperationError(f"nothing that was asked for could be read, {otherwise}", next_step=next_step)
    raise OperationError(
        f"{len(failed)} of {len(looked.asked)} sources that were asked for could not be read, {otherwise}",
        next_step=f"{next_step}; or leave that source out",
    )


def why_unread(looked: Looked) -> str:
    """Why a look has seen nothing of what was named: the first reason."""
    return looked.bundle.gaps[0].reason if looked.bundle.gaps else "what was read makes no sense"


def tell(gaps: Iterable[Gap], what: str = "could not be read") -> None:
    """Each gap on stderr, once; what is `left out` with the signals that go with it."""
    reasons = list(
        dict.fromkeys(f"{', '.join(gap.signals) if what == LEFT_OUT else gap.source}: {gap.reason}" for gap in gaps)
    )
    for reason in reasons[:_SHOWN]:
        say(masked(clean(f"{what}: {reason}")))
    if len(reasons) > _SHOWN:
        say(f"{what}: {len(reasons) - _SHOWN} more")


def _was_read(source: Source, bundle: Bundle, evidence: Evidence) -> bool:
    """It brought an artifact, and not all of its artifacts are refused.

    A gap that names a subject is no refusal: something was read, in which that subject does not show (a damaged rank
    among others, a log that ends before the time that is asked for).
    """
    makers = _SHARED.get(source.collector, (source.collector,))
    groups: dict[tuple[str, str], set[str]] = {}
    for artifact in bundle.artifacts:
        if artifact.collector in makers and _is_of(source, artifact.source):
            groups.setdefault((artifact.collector, artifact.group), set()).add(artifact.name)
    provided = {collector.name: collector.provides for collector in COLLECTORS}
    refused = {
        gap.origin.artifact
        for gap in evidence.gaps
        if gap.origin and gap.subject is None and provided.get(gap.source, {""}) <= set(gap.signals)
    }
    return any(not names & refused for names in groups.values())


def _is_of(source: Source, place: str) -> bool:
    return not source.place or place == source.place or place.startswith(f"{source.place}/")


def _gaps_of(source: Source, bundle: Bundle, evidence: Evidence) -> Sequence[Gap]:
    makers = _SHARED.get(source.collector, (source.collector,))
    own = [gap for gap in evidence.gaps if gap.source in makers]
    names = {artifact.name for artifact in bundle.artifacts if _is_of(source, artifact.source)}
    said = [gap for gap in own if source.place in gap.reason or (gap.origin and gap.origin.artifact in names)]
    return said or own or [Gap(source.collector, f"{source.place or source.collector} brought nothing")]
