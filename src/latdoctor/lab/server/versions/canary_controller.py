"""Watches the canary of a router: sends the probe set to both versions, and promotes or rolls back by itself.

`GET /admin/canary` has the state, the counts and their intervals, and the last decision with its reason. A canary that
is not proven within PROOF_SECONDS is rolled back. Without `canary_judge` it is only compared; without a probe set its
accuracy is not known, so that it can be rolled back and is never promoted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.lab.server.errors import RequestRefused
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool, ReplicaState, ReplicaStatus
from latdoctor.lab.server.versions.canary_judgement import Criterion, Decision, Judgement, ShareComparison, judge
from latdoctor.lab.server.versions.probe_set import ProbeRequest, read_probe_set
from latdoctor.lab.server.versions.version_metrics import VersionMetrics
from latdoctor.lab.server.versions.version_rollout import VersionRollout
from latdoctor.shares import Share

TICK = 0.5  # seconds between two looks
PROBES_PER_TICK = 5  # to each of both versions during a canary
PROBES_BETWEEN = 1  # to each version otherwise: a version that takes over all at once is compared with what was before
PROBE_SECONDS = 5.0
PROOF_SECONDS = 120.0
RETRY_SECONDS = 5.0  # after a replica refused a version
_USUAL = 0.95  # of the other version's answers are not slow, where no SLO is set
_FEWEST_USUAL = 50  # of its answers, to know that


NOT_PROVEN = "not-proven"  # beside the criteria, a reason to roll back


class CanaryStatus(Struct, frozen=True):
    """`seconds` since the canary has a replica; `last` and `reason` are those of the last decision."""

    version: str
    stable_version: str
    judged: bool
    seconds: float
    decision: Decision
    compared: dict[str, ShareComparison]
    last: Decision | None
    last_version: str
    reason: str
    decided_after: float
    refused: str


class CanaryObservation(Struct, frozen=True):
    """One canary, from its first replica on; `began` on the monotonic clock."""

    canary: str
    stable: str
    began: float


class ProbeSet:
    """The probes of the configured file, around and around."""

    def __init__(self) -> None:
        self._file = ""
        self._probes: Sequence[ProbeRequest] = ()
        self._sent = 0

    def next(self, file: str, count: int) -> Sequence[ProbeRequest]:
        """None without a file, or where it can no longer be read: the accuracy is then not known."""
        if file != self._file:
            self._file, self._probes = file, ()
            if file:
                with suppress(UsageError):
                    self._probes = read_probe_set(Path(file))
        start, self._sent = self._sent, self._sent + count
        return [self._probes[at % len(self._probes)] for at in range(start, self._sent)] if self._probes else ()


class CanaryController:
    """Runs in the router's process, on its event loop."""

    def __init__(
        self, pool: ReplicaPool, rollout: VersionRollout, metrics: VersionMetrics, registry: CollectorRegistry
    ) -> None:
        self._pool, self._rollout, self._metrics = pool, rollout, metrics
        self._promotions = Counter("ref_router_canary_promotions", "Canaries that were promoted", registry=registry)
        self._rollbacks = Counter(
            "ref_router_canary_rollbacks", "Canaries that were rolled back, by why", ("reason",), registry=registry
        )
        for reason in (*Criterion, NOT_PROVEN):
            self._rollbacks.labels(reason)
        self._observed: CanaryObservation | None = None
        self._probes = ProbeSet()
        self._judgement = Judgement(Decision.OBSERVE, "", {})
        self._last: tuple[Decision | None, str, str, float] = (None, "", "", 0.0)
        self._refused = ""
        self._retry_at = 0.0

    def status(self) -> CanaryStatus:
        observed, config = self._observed, self._pool.config
        last, version, reason, seconds = self._last
        return CanaryStatus(
            version=config.canary_version,
            stable_version=observed.stable if observed else "",
            judged=config.canary_judge,
            seconds=round(time.monotonic() - observed.began, 2) if observed else 0.0,
            decision=self._judgement.decision,
            compared=self._judgement.compared,
            last=last,
            last_version=version,
            reason=reason,
            decided_after=round(seconds, 2),
            refused=self._refused,
        )

    async def run(self) -> None:
        """Until it is cancelled."""
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                await asyncio.sleep(TICK)
                await self._reconcile()
                await self._look(session)

    async def _reconcile(self) -> None:
        if time.monotonic() < self._retry_at:
            return
        try:
            await self._rollout.reconcile()
            self._refused = ""
        except RequestRefused as refused:
            self._refused, self._retry_at = refused.what, time.monotonic() + RETRY_SECONDS

    async def _look(self, session: aiohttp.ClientSession) -> None:
        config = self._pool.config
        observed = self._observation(config)
        await self._send_probes(session, config.probe_set, PROBES_PER_TICK if observed else PROBES_BETWEEN)
        if observed is None:
            return
        self._judgement = judge(self._shares(config, observed))
        if not config.canary_judge:
            return
        seconds = time.monotonic() - observed.began
        match self._judgement.decision:
            case Decision.PROMOTE:
                await self._decide(observed, Decision.PROMOTE, "", seconds)
            case Decision.ROLL_BACK:
                await self._decide(observed, Decision.ROLL_BACK, self._judgement.reason, seconds)
            case Decision.OBSERVE if seconds > PROOF_SECONDS:
                await self._decide(observed, Decision.ROLL_BACK, NOT_PROVEN, seconds)

    def _observation(self, config: RouterConfig) -> CanaryObservation | None:
        """The canary in progress; None while there is none, or while one of both versions has no replica."""
        if not config.canary_version:
            self._observed = None
            return None
        versions = self._versions()
        others = [version for version in versions if version != config.canary_version]
        if config.canary_version not in versions or not others:
            return self._observed
        if self._observed is None or self._observed.canary != config.canary_version:
            self._metrics.reset()
            self._observed = CanaryObservation(config.canary_version, others[0], time.monotonic())
        return self._observed

    def _versions(self) -> Mapping[str, ReplicaStatus]:
        """A ready replica of each version."""
        return {one.version: one for one in self._pool.statuses() if one.state is ReplicaState.READY and one.version}

    def _shares(self, config: RouterConfig, observed: CanaryObservation) -> Mapping[Criterion, tuple[Share, Share]]:
        canary, stable = observed.canary, observed.stable
        found = {Criterion.ERRORS: (self._metrics.errors(canary), self._metrics.errors(stable))}
        limit = config.canary_slo_ms / 1000
        if not limit and self._metrics.totals(stable).requests >= _FEWEST_USUAL:
            limit = self._metrics.quantile(stable, _USUAL)
        if limit:
            found[Criterion.LATENCY] = (
                self._metrics.slower_than(canary, limit), self._metrics.slower_than(stable, limit)
            )  # fmt: skip
        if self._metrics.totals(canary).probes and self._metrics.totals(stable).probes:
            found[Criterion.ACCURACY] = (self._metrics.wrong(canary), self._metrics.wrong(stable))
        return found

    async def _send_probes(self, session: aiohttp.ClientSession, probe_set: str, count: int) -> None:
        """The next probes to a replica of each version."""
        probes = self._probes.next(probe_set, count)
        replicas = self._versions().values()
        await asyncio.gather(*(self._probe(session, replica, probe) for replica in replicas for probe in probes))

    async def _probe(self, session: aiohttp.ClientSession, replica: ReplicaStatus, probe: ProbeRequest) -> None:
        """Counts the answer for the version that gave it; a probe that fails is no answer."""
        try:
            async with session.post(f"{replica.url}/v1/intent", json={"text": probe.text}) as response:
                body = await response.content.read(_MOST_BYTES)
        except (aiohttp.ClientError, TimeoutError):
            return
        try:
            answer = _ANSWER.decode(body)
        except UNDECODABLE:
            return
        if response.status == 200 and answer.source == "model":
            self._metrics.probed(answer.model_version, right=answer.intent == probe.intent)

    async def _decide(self, observed: CanaryObservation, decision: Decision, reason: str, seconds: float) -> None:
        """Carries a decision out; where a replica refuses, it is decided again at the next look."""
        async with self._rollout.lock:
            config = self._pool.config
            if config.canary_version != observed.canary or not config.canary_judge:
                return  # the operator was quicker
            promoted = {"model_version": observed.canary} if decision is Decision.PROMOTE else {}
            try:
                await self._rollout.apply(msgspec.structs.replace(config, canary_version="", **promoted))
            except LatdoctorError as error:
                self._refused = error.what
                return
        self._last = (decision, observed.canary, reason, seconds)
        if decision is Decision.PROMOTE:
            self._promotions.inc()
        else:
            self._rollbacks.labels(reason).inc()


class _Answer(Struct):
    intent: str = ""
    model_version: str = ""
    source: str = ""


_MOST_BYTES = 64 * 1024
_ANSWER = msgspec.json.Decoder(_Answer)
