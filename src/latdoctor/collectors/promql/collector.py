"""Collector of a Prometheus server: queries the judged window and the history before it once, and keeps the raw
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    PrometheusServer,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.prometheus.scrape import artifact_file_name
from latdoctor.collectors.promql import CHANGES, NAME, client, label_changes, query_plan
from latdoctor.collectors.promql.client import QueryResult
from latdoctor.collectors.promql.evidence import (
    AnsweredQuery,
    evidence_of,
    scrape_interval,
    server_signals,
)
from latdoctor.collectors.promql.query_plan import (
    MAX_TARGETS,
    PlannedQuery,
    PrometheusTarget,
    QueryPlan,
    dialects_of,
    ranked_targets,
    samples_by_target,
    serving_targets,
)
from latdoctor.dialects import promql
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.model import Dialect
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.evidence.model import to_json as canonical
from latdoctor.gap_code import GapCode

_PLAN = "00-plan.json"
_PATIENCE, _ROUNDS = 3, 3  # timeouts for all queries, in three rounds; the runner abandons a collector after more
_READ = (query_plan.FOUND, query_plan.NAMES, query_plan.LAST, query_plan.GROWTH, query_plan.LEVEL)
_MAX_PLAN = 4 << 20


def _collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Query which targets and samples exist, then their values. A failed query is a gap; the others continue."""
    del clock  # the server's own times apply: from `since` to `until`
    server = request.prometheus
    if server is None:
        return CollectResult()
    session = _QuerySession(server, request.timeout)
    plan = query_plan.plan_for(server)
    first = session.run(query_plan.discovery_queries(plan, shipped()))
    found = samples_by_target([answer for query, answer in first if query.role == query_plan.FOUND])
    targets = ranked_targets(found)[:MAX_TARGETS]
    past = samples_by_target([answer for query, answer in first if query.role == query_plan.PAST])
    known = [*targets, *(one for one in ranked_targets(past) if one not in found)][:MAX_TARGETS]
    if known:
        dialects = list(dict.fromkeys(dialect for target in targets for dialect in dialects_of(found[target])))
        second = session.run(query_plan.target_queries(plan, dialects, _selecting(server, known)))
        plan = structs.replace(plan, pace=scrape_interval(plan, [AnsweredQuery(*one) for one in second]))
    if targets:
        chosen = _selecting(server, targets)
        samples = samples_by_target([answer for query, answer in second if query.role == query_plan.NAMES])
        by_dialect = {
            dialect.id: frozenset(
                name for target in targets if dialect in dialects_of(found[target]) for name in samples.get(target, ())
            )
            for dialect in dialects
        }
        more = query_plan.sample_queries(plan, dialects, by_dialect, chosen)
        jobs = {target.job for target in serving_targets({target: found[target] for target in targets})}
        session.run((*more, *label_changes.change_queries(plan, dialects, jobs, server.select)))
    return session.collected(plan)


def _selecting(server: PrometheusServer, targets: Iterable[PrometheusTarget]) -> tuple[str, ...]:
    """The matchers of the series of these targets."""
    return (*server.select, promql.name_matcher(sorted({target.instance for target in targets}), "instance"))


class _QuerySession:
    """The queries of one collection, their raw results and failures."""

    def __init__(self, server: PrometheusServer, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._group = f"1-{artifact_file_name(server.access.name)}"
        self._kept: list[tuple[PlannedQuery, bytes]] = []
        self._failed: dict[tuple[str, str, GapCode], list[PlannedQuery]] = {}

    def run(self, questions: Iterable[PlannedQuery]) -> list[tuple[PlannedQuery, QueryResult]]:
        """Return the results of those queries that succeeded."""
        query = list(questions)
        deadline = _PATIENCE / _ROUNDS * self._timeout
        replies = client.run_queries(self._server.access, [one.question for one in query], self._timeout, deadline)
        found: list[tuple[PlannedQuery, QueryResult]] = []
        for one, reply in zip(query, replies, strict=True):
            if reply.body is None:
                self._failed.setdefault((reply.why, reply.next_step, reply.code), []).append(one)
                continue
            try:
                answer = client.parse_result(reply.body, self._server.access.name)
            except SourceError as error:
                self._failed.setdefault((f"returned {error.what}", error.next_step, error.code), []).append(one)
                continue
            name = f"{NAME}/{self._group}/{len(self._kept) + 1:02d}-{one.role}.json"
            self._kept.append((structs.replace(one, artifact=name), reply.body))
            found.append((one, answer))
        return found

    def collected(self, plan: QueryPlan) -> CollectResult:
        gaps = tuple(self._gaps())
        if not self._kept:
            return CollectResult(gaps=gaps)
        stored = structs.replace(plan, queries=tuple(query for query, _ in self._kept))
        group, source = self._group, self._server.access.url
        artifacts = [
            Artifact(f"{NAME}/{group}/{_PLAN}", NAME, group, source, plan.start, canonical(stored)),
            *(Artifact(query.artifact, NAME, group, source, plan.until, raw) for query, raw in self._kept),
        ]
        return CollectResult(tuple(artifacts), gaps)

    def _gaps(self) -> Iterator[Gap]:
        """One gap per reason."""
        samples = self._server.access.url
        for (why, next_step, code), failed in self._failed.items():
            if not self._kept:
                yield Gap(NAME, f"{samples} {why}", tuple(sorted(server_signals())), None, next_step, code=code)
                return  # the same reason for all queries that were sent
            lost = {name for one in failed if one.role in _READ for name in one.names}
            roles = {one.role for one in failed}
            hidden = {*_hidden_by(lost, shipped()), *(CHANGES if roles & label_changes.ROLES else ())}
            reason = f"{samples}: {len(failed)} of the queries ({', '.join(sorted(roles))}): {why}"
            yield Gap(NAME, reason, tuple(sorted(hidden)), None, next_step, code=code)


def _hidden_by(names: set[str], dialects: Iterable[Dialect]) -> Iterator[str]:
    """The signals that depend on one of the samples `names`."""
    for dialect in dialects:
        for options in dialect.rules:
            if any(promql.rule_samples(rule) & names for rule in options):
                yield options[0].signal


def _parse(artifacts: Sequence[Artifact]) -> Evidence:
    """Raises SourceError if the plan is missing or broken, or no series belongs to a dialect."""
    by_name = {artifact.name: artifact for artifact in artifacts}
    stored = next((one for one in artifacts if one.name.endswith(f"/{_PLAN}")), None)
    if stored is None:
        where = artifacts[0].source if artifacts else NAME
        raise SourceError("its query plan is missing", where=where, code=GapCode.ABSENT)
    plan = query_plan.parse_plan(stored.read(_MAX_PLAN), stored.source)
    answered: list[AnsweredQuery] = []
    gaps: list[Gap] = []
    for query in plan.queries:
        artifact = by_name.get(query.artifact)
        if artifact is None:
            continue
        try:
            answered.append(AnsweredQuery(query, client.parse_result(artifact.read(client.MAX_BYTES), artifact.source)))
        except SourceError as error:
            hidden = tuple(sorted(set(_hidden_by(set(query.names), shipped()))))
            gaps.append(Gap(NAME, f"{artifact.name}: {error.what}", hidden, None, error.next_step, code=error.code))
    server = stored.source.partition("://")[2] or stored.source
    evidence = evidence_of(plan, answered, server, stored.name)
    return Evidence.merge([evidence, Evidence(gaps=tuple(gaps))])


def _preflight() -> Sequence[SourceAvailability]:
    return [
        SourceAvailability(
            "history in a Prometheus server",
            Availability.IF_GIVEN,
            "rates and quantiles of a past time, and when they changed",
            "--prometheus URL (--select, --since, --until)",
            "--prometheus URL",
        )
    ]


READER = SourceReader(_collect, _parse, _preflight)
