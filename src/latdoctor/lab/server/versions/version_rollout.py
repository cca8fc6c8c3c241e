"""Puts the versions of the router's configuration into the replicas, through their admin interfaces.

    model_version    of all replicas                 changed: a full cut-over, one replica after the other
    canary_version   of the last `canary_replicas`   set: a canary begins; empty again: it is rolled back
    model_version = canary_version, canary_version = ""                         the canary is promoted

A replica switches between two batches and loses no request. Where one refuses a version (409 with a code of
`model_registry`), those before it are switched back and the configuration stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.lab.server.errors import RequestRefused, Unavailable
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool, ReplicaState, ReplicaStatus
from latdoctor.sanitize import clean

SWITCH_SECONDS = 60.0  # in which a replica has to load a version
_MOST_BYTES = 64 * 1024


class _RefusalBody(Struct):
    error: str = "refused"
    detail: str = ""


class VersionRollout:
    """Changes one configuration after the other. Used on the router's event loop."""

    def __init__(self, pool: ReplicaPool, token: str) -> None:
        """`token`: of the replicas' admin interfaces."""
        self._pool = pool
        self._token = token
        self.lock = pool.changing

    async def apply(self, after: RouterConfig) -> None:
        """Applies a configuration, with `lock` held. Returns when every replica that is ready has its version.

        Raises UsageError for a bad configuration, RequestRefused where a replica does not take its version; then the
        configuration is what it was, except that a canary that could not be switched back has no more share.
        """
        before = self._pool.config
        if before.canary_version and after.canary_version not in ("", before.canary_version):
            raise UsageError(
                f"there is a canary of {before.canary_version}", next_step='end it first: "canary_version": ""'
            )
        if not _versions_differ(before, after):
            self._pool.configure(after)
            return
        # A canary that is rolled back gets no more requests while its replicas are switched back. One that is promoted
        # is equal to the others at once, and a new one gets its share from its first request on.
        rolled_back = (
            before.canary_version and not after.canary_version and after.model_version != before.canary_version
        )
        no_share = {"canary_version": before.canary_version, "canary_share": 0.0}
        self._pool.configure(msgspec.structs.replace(after, **no_share) if rolled_back else after)
        try:
            await self._switch(after)
        except BaseException:
            self._pool.configure(msgspec.structs.replace(before, **no_share) if rolled_back else before)
            raise
        self._pool.configure(after)

    async def reconcile(self) -> None:
        """Switches replicas whose process was started anew to their version; one that an operator has switched stays.

        Raises RequestRefused where one does not take it.
        """
        async with self.lock:
            started = [one.name for one in self._pool.statuses() if one.fresh and one.version]
            await self._switch(self._pool.config, fresh=True)
            for name in started:
                self._pool.settled(name)

    async def _switch(self, config: RouterConfig, *, fresh: bool = False) -> None:
        done: list[tuple[ReplicaStatus, str]] = []
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SWITCH_SECONDS)) as session:
            try:
                for replica, version in self._to_switch(config, fresh=fresh):
                    await self._set_version(session, replica, version)
                    done.append((replica, replica.version))
            except RequestRefused:
                for replica, version in reversed(done):
                    await self._set_version(session, replica, version)
                raise

    def _to_switch(self, config: RouterConfig, *, fresh: bool) -> Sequence[tuple[ReplicaStatus, str]]:
        """The replicas with another version than they shall have; `fresh`: only those."""
        ready = [one for one in self._pool.statuses() if one.state is ReplicaState.READY and one.version]
        ready = [one for one in ready if one.fresh or not fresh]
        wanted = ((one, self._pool.desired_version(one.name, config)) for one in ready)
        return [(one, version) for one, version in wanted if version and version != one.version]

    async def _set_version(self, session: aiohttp.ClientSession, replica: ReplicaStatus, version: str) -> None:
        """Raises RequestRefused."""
        headers = {"Authorization": f"Bearer {self._token}", "If-Match": "*"}
        body = {"model": {"version": version}}
        url = f"{replica.url}/admin/config"
        try:
            async with session.patch(url, json=body, headers=headers, allow_redirects=False) as answer:
                content = await answer.content.read(_MOST_BYTES)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable("replica-unreachable", f"replica {replica.name} did not take {version}") from error
        if answer.status != 200:
            try:
                refused = msgspec.json.decode(content, type=_RefusalBody)
            except UNDECODABLE:
                refused = _RefusalBody()
            detail = f"replica {replica.name} did not take {version}: {clean(refused.detail, 200)}"
            raise RequestRefused(answer.status if answer.status >= 400 else 502, clean(refused.error, 40), detail)
        self._pool.switched(replica.name, version)


def _versions_differ(one: RouterConfig, other: RouterConfig) -> bool:
    names = ("model_version", "canary_version", "canary_replicas")
    return any(getattr(one, name) != getattr(other, name) for name in names)
