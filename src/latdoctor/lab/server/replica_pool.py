"""The replicas behind the router: state, requests in flight, and choice of the next one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum

import msgspec
from msgspec import Struct

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.load_balancing import (
    CanarySplit,
    Candidate,
    Policy,
    RouterConfig,
    build,
    slow_start_weight,
    sticky_replica,
)
from latdoctor.lab.server.outlier_ejection import EjectionReason, OutlierEjection


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    DRAINING = "draining"
    LOST = "lost"


class Replica(Struct):
    """One replica. Only `ReplicaPool` changes it."""

    name: str
    url: str  # http://host:port
    state: ReplicaState = ReplicaState.STARTING
    ready_since: float = 0.0  # seconds of the pool's clock; counts while ready
    in_flight: int = 0
    pid: int = 0  # 0: no process
    losses: int = 0
    starts: int = 0  # how many processes it has had
    version: str = ""  # of its model; empty: not known yet
    started_version: str = ""  # the first one that it served
    switches: int = 0  # of its version, by the router
    fresh: bool = True  # its process has the version of its command line


class ReplicaStatus(Struct, frozen=True):
    """A replica as reported by the admin interface and the metrics page."""

    name: str
    url: str
    state: ReplicaState
    pid: int
    in_flight: int
    losses: int
    starts: int
    weight: float
    eased_weight: float  # what counts now; below `weight` while it is eased in; 0 where it takes nothing
    weight_share: float  # of its weight, whatever that is
    version: str = ""  # of its model; empty: not known yet
    fresh: bool = False  # the router has not given its process a version yet
    ejected: EjectionReason | None = None  # None: it is not
    ejections: dict[EjectionReason, int] = {}  # so far, by why


class ReplicaPool:
    """Chooses among the replicas that are ready, by the policy of the configuration in force."""

    def __init__(
        self,
        urls: dict[str, str],
        config: RouterConfig | None = None,
        *,
        dynamic: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`urls` by name; `dynamic`: replicas come and go through `replace_ready`, and there may be none.

        Raises UsageError where there is none otherwise, or where the configuration does not fit.
        """
        if not urls and not dynamic:
            raise UsageError("a router needs at least one replica")
        self._now = now
        self._replicas = {name: Replica(name, url.rstrip("/")) for name, url in urls.items()}
        self._changed = asyncio.Event()
        self.changing = asyncio.Lock()  # held while a configuration is read in order to change it
        self._split = CanarySplit()
        self._outliers = OutlierEjection()
        self.changes = -1  # of the configuration since the start
        self.configure(config or RouterConfig())

    @property
    def config(self) -> RouterConfig:
        return self._config

    def configure(self, config: RouterConfig) -> None:
        """Applies a configuration to the next request. Raises UsageError for a bad one."""
        try:
            config = msgspec.convert(msgspec.to_builtins(config), RouterConfig)
        except msgspec.ValidationError as error:
            raise UsageError(f"the router's configuration is not valid: {error}") from error
        unknown = sorted(config.weights.keys() - self._replicas.keys())
        if unknown:
            raise UsageError(
                f"there is no replica {', '.join(unknown)}", next_step=f"one of {', '.join(self._replicas)}"
            )
        if self._replicas and all(config.weights.get(name, 1.0) == 0 for name in self._replicas):
            raise UsageError(
                "every replica has weight 0: no replica would get requests",
                next_step="leave one its weight; null resets a weight to 1",
            )
        self._config = config
        self._outliers.configure(config.outlier_rule)
        self.changes += 1
        # The canary has a balancer of its own: credits of one group of replicas are nothing to the other.
        self._balancers = [build(config.policy, config.slow_start_ms / 1000) for _ in range(2)]

    def choose(self, but: frozenset[str] = frozenset(), session: str | None = None) -> Replica | None:
        """The replica for the next request, except those in `but`; None if none is ready.

        An ejected one only where no other is ready: a slow answer is better than none.
        With sticky sessions, a request of a session goes to the session's replica. During a canary it is one of the
        canary's replicas for the canary's share of the requests; where one of the versions has no replica, the other
        one answers.
        """
        now = self._now()
        candidates = [
            Candidate(one.name, self._weight(one.name), one.in_flight, now - one.ready_since)
            for one in self._replicas.values()
            if one.state is ReplicaState.READY and one.name not in but
        ]
        candidates = [one for one in candidates if self._outliers.reason(one.name) is None] or candidates
        candidates, canary = self._of_version(candidates, session)
        sticky = self._config.sticky and session is not None
        chosen = sticky_replica(session or "", candidates) if sticky else self._balancers[canary].choose(candidates)
        return None if chosen is None else self._replicas[chosen]

    def _of_version(self, candidates: list[Candidate], session: str | None) -> tuple[list[Candidate], bool]:
        """Those of the version that answers the next request, and whether that is the canary."""
        version = self._config.canary_version
        if not version:
            return candidates, False
        groups = [
            [one for one in candidates if (self._replicas[one.name].version == version) is of] for of in (False, True)
        ]
        canary = self._split.to_canary(self._config, session)
        if not groups[canary]:
            canary = not canary
        return groups[canary], canary

    def answered(self, name: str, *, failed: bool, seconds: float) -> None:
        """The replica answered a request after `seconds`, or failed to; that may eject it."""
        ready = [one.name for one in self._replicas.values() if one.state is ReplicaState.READY]
        self._outliers.answered(name, self._now(), failed=failed, seconds=seconds, ready=ready)

    def to_probe(self) -> Sequence[str]:
        """The ejected replicas that are to be tried again now."""
        due = self._outliers.due(self._now())
        return [name for name in due if name in self._replicas and self._replicas[name].state is ReplicaState.READY]

    def probed(self, name: str, *, failed: bool, seconds: float) -> None:
        """The result of a probe; a good one lets the replica in again, with slow start."""
        if self._outliers.probed(name, self._now(), failed=failed, seconds=seconds) and name in self._replicas:
            self._replicas[name].ready_since = self._now()
            self._changed.set()

    def serves(self, name: str, version: str, switches: int) -> None:
        """The replica reported this version when it had been switched so many times; an earlier report is ignored."""
        replica = self.known(name)
        if version and replica.switches == switches:
            replica.version = version
            replica.started_version = replica.started_version or version

    def switched(self, name: str, version: str) -> None:
        """The replica was made to serve this version."""
        replica = self.known(name)
        replica.version, replica.fresh = version, False
        replica.switches += 1

    def settled(self, name: str) -> None:
        """The replica's process has the version that it shall have; what an operator changes from now on stays."""
        replica = self.known(name)
        if replica.state is ReplicaState.READY:
            replica.fresh = False

    @property
    def version_switches(self) -> int:
        """How often a replica was given another version."""
        return sum(one.switches for one in self._replicas.values())

    def desired_version(self, name: str, config: RouterConfig | None = None) -> str:
        """The version that the replica shall have by the configuration; empty: not known."""
        config = config or self._config
        canaries = list(self._replicas)[-config.canary_replicas :]
        if config.canary_version and name in canaries:
            return config.canary_version
        return config.model_version or self.known(name).started_version

    @contextmanager
    def in_flight(self, replica: Replica) -> Iterator[None]:
        """Counts a request as in flight at the replica."""
        replica.in_flight += 1
        try:
            yield
        finally:
            replica.in_flight -= 1
            self._changed.set()

    def known(self, name: str) -> Replica:
        """The replica of that name. Raises UsageError for an unknown one."""
        if name not in self._replicas:
            raise UsageError(f"there is no replica {name!r}", next_step=f"one of {', '.join(self._replicas)}")
        return self._replicas[name]

    def replace_ready(self, urls: Mapping[str, str]) -> None:
        """From now on exactly these replicas, all of them ready; requests in flight at others are completed."""
        for name in self._replicas.keys() - urls.keys():
            del self._replicas[name]
            self._outliers.forget(name)
        for name, url in urls.items():
            if name not in self._replicas or self._replicas[name].url != url.rstrip("/"):
                self._replicas[name] = Replica(name, url.rstrip("/"), ReplicaState.READY, self._now(), starts=1)
        self._changed.set()

    def add(self, name: str, url: str) -> None:
        """A further replica, which is starting. Raises UsageError for a name that is taken."""
        if name in self._replicas:
            raise UsageError(f"there is a replica {name!r} already")
        self._replicas[name] = Replica(name, url.rstrip("/"))
        self._changed.set()

    def remove(self, name: str) -> None:
        """The replica is gone, with its weight; requests in flight at it are completed."""
        self._replicas.pop(name, None)
        self._outliers.forget(name)
        weights = {other: weight for other, weight in self._config.weights.items() if other != name}
        self._config = msgspec.structs.replace(self._config, weights=weights)
        self._changed.set()

    def started(self, name: str, pid: int) -> None:
        """Its process runs; it is not ready yet."""
        self._replicas[name].starts += 1
        self._outliers.forget(name)
        self._replicas[name].version, self._replicas[name].fresh = "", True
        self._set(name, ReplicaState.STARTING, pid)

    def ready(self, name: str) -> None:
        """It takes requests, from now on with slow start; one that is draining stays so."""
        replica = self._replicas[name]
        if replica.state not in (ReplicaState.READY, ReplicaState.DRAINING):
            replica.ready_since = self._now()
            self._set(name, ReplicaState.READY, replica.pid)

    def unready(self, name: str) -> None:
        """Its process runs and takes no requests: it reports not ready, or does not answer."""
        if self._replicas[name].state is ReplicaState.READY:
            self._set(name, ReplicaState.UNREADY, self._replicas[name].pid)

    def drain(self, name: str) -> None:
        """No more requests for it; those in flight are completed. Raises UsageError for an unknown name."""
        self._set(name, ReplicaState.DRAINING, self.known(name).pid)

    def lost(self, name: str) -> None:
        """Its process has ended; a loss, unless it was drained."""
        self._replicas[name].losses += self._replicas[name].state is not ReplicaState.DRAINING
        self._set(name, ReplicaState.LOST, 0)

    def statuses(self) -> Sequence[ReplicaStatus]:
        return [
            ReplicaStatus(
                name=one.name,
                url=one.url,
                state=one.state,
                pid=one.pid,
                in_flight=one.in_flight,
                losses=one.losses,
                starts=one.starts,
                weight=(weight := self._weight(one.name)),
                eased_weight=weight * (share := self._weight_share(one)),
                weight_share=share,
                version=one.version,
                fresh=one.fresh,
                ejected=self._outliers.reason(one.name),
                ejections={reason: self._outliers.counts[one.name, reason] for reason in EjectionReason},
            )
            for one in self._replicas.values()
        ]

    async def until(self, holds: Callable[[Sequence[ReplicaStatus]], bool], within: float) -> None:
        """Returns once `holds` is true of the statuses. Raises OperationError after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                while not holds(self.statuses()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            states = ", ".join(f"{one.name} is {one.state}" for one in self.statuses())
            raise OperationError(f"the replicas did not reach the expected state in {within:g} s: {states}") from error

    def _weight(self, name: str) -> float:
        # Round-robin ignores the weights.
        return 1.0 if self._config.policy is Policy.ROUND_ROBIN else self._config.weights.get(name, 1.0)

    def _weight_share(self, one: Replica) -> float:
        ready_for, slow = self._now() - one.ready_since, self._config.slow_start_ms / 1000
        takes = one.state is ReplicaState.READY and self._outliers.reason(one.name) is None
        return slow_start_weight(1.0, ready_for, slow) if takes else 0.0

    def _set(self, name: str, state: ReplicaState, pid: int) -> None:
        replica = self._replicas[name]
        replica.state, replica.pid = state, pid
        self._changed.set()
