"""Failed requests and wrong answers by version of the model: how much worse a version in service is, at the least.

Failures are compared between versions that serve at the same time, so that both see the same load. Answers to the
probe set do not depend on the load: they are compared with those of any version since the router's start, also one
that is no longer in service. A difference is the lower end of its interval (`shares`), three standard errors wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latdoctor.detectors.replica_outliers import VERSION
from latdoctor.evidence.model import Evidence, Origin, Reading, is_unknown
from latdoctor.shares import Share, difference

ERRORS, ACCURACY, WORST = "version.errors_worse_by", "version.accuracy_worse_by", "version.worst"
DERIVED = (ERRORS, ACCURACY, WORST)
_Z = 3.0
_FEWEST = 20  # requests or probes of either version


def version_outcomes(evidence: Evidence) -> Evidence:
    """Derive how much worse the worst version in service is, for each server with several versions."""
    requests = _counts(evidence, "version.requests")
    found = [one for subject in requests for one in _of_server(evidence, subject, requests[subject])]
    return Evidence(readings=tuple(found))


def _counts(evidence: Evidence, signal: str) -> dict[str, dict[str, Reading]]:
    """Readings by subject and version."""
    found: dict[str, dict[str, Reading]] = {}
    for one in evidence.readings_by_signal.get(signal, ()):
        version = dict(one.labels).get(VERSION)
        if version and not is_unknown(one.value) and not isinstance(one.value, str):
            found.setdefault(one.subject, {})[version] = one
    return found


def _of_server(evidence: Evidence, subject: str, requests: Mapping[str, Reading]) -> Iterator[Reading]:
    serving = [version for version, one in requests.items() if _number(one) > 0]
    probes, wrong = (_counts(evidence, name).get(subject, {}) for name in ("version.probes", "version.wrong_probes"))
    errors = _counts(evidence, "version.errors").get(subject, {})
    worse: list[tuple[float, str]] = []
    for signal, totals, bad, others in (
        (ERRORS, requests, errors, serving),
        (ACCURACY, probes, wrong, list(probes)),
    ):
        shares = {version: Share(_whole(bad.get(version)), _whole(one)) for version, one in totals.items()}
        compared = [
            (difference(shares[version], shares[other], _Z)[0], version, other)
            for version in serving
            for other in others
            if version != other and min(shares.get(one, Share(0, 0)).total for one in (version, other)) >= _FEWEST
        ]
        if compared:
            least, version, other = max(compared)
            source = totals[version]
            note = f"version {version}: {_of(shares[version])}; version {other}: {_of(shares[other])}"
            origin = Origin(source.origin.artifact, source.signal)
            yield Reading(signal, subject, max(0.0, least), origin, source.window, note=note)
            worse.append((least, version))
    if worse:
        source = requests[max(worse)[1]]
        origin = Origin(source.origin.artifact, source.signal)
        yield Reading(WORST, subject, max(worse)[1], origin, source.window)


def _number(one: Reading) -> float:
    return one.value if not isinstance(one.value, str) else 0.0


def _whole(one: Reading | None) -> int:
    return round(_number(one)) if one is not None else 0


def _of(share: Share) -> str:
    return f"{share.bad} of {share.total}"
