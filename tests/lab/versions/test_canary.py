"""A canary behind the router, with replicas that are processes: its share, its versions, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.server.load_balancing import CanarySplit, RouterConfig, SplitBy
from latdoctor.lab.server.versions import canary_controller
from latdoctor.lab.server.versions.canary_judgement import Decision
from latdoctor.lab.server.versions.probe_set import ProbeRequest, read_probe_set, write_probe_set
from tests.lab.router.cluster import TOKEN, Cluster, cluster, run

LET_IN = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", "if-match": "*"}
NAMES = ("a", "b", "c")


async def configure(found: Cluster, **knobs: Any) -> tuple[int, dict[str, Any]]:
    async with found.session.patch("/admin/config", json=knobs, headers=LET_IN) as answer:
        return answer.status, await answer.json()


async def until(holds: Any) -> None:
    """The test's deadline bounds it."""
    while not holds():
        await asyncio.sleep(0.005)


async def versions_known(found: Cluster) -> None:
    await until(lambda: all(one.version for one in found.fleet.statuses()))


async def ask(found: Cluster, session: str | None = None) -> tuple[int, str]:
    """The status, and the version that answered."""
    body = {"text": "x"} | ({"session": session} if session else {})
    async with found.session.post("/v1/intent", json=body) as answer:
        return answer.status, answer.headers.get("x-model-version", "")


def versions(found: Cluster) -> list[str]:
    return [one.version for one in found.fleet.statuses()]


@given(st.floats(0, 1), st.integers(1, 400))
def test_the_share_of_requests_is_exact(share: float, requests: int) -> None:
    split, config = CanarySplit(), RouterConfig(canary_version="v2", canary_share=share)
    sent = sum(split.to_canary(config, None) for _ in range(requests))
    assert abs(sent - share * requests) < 1.000001


@given(st.floats(0, 1), st.floats(0, 1), st.text(min_size=1, max_size=20))
def test_a_session_of_a_small_share_is_in_a_larger_one(one: float, other: float, session: str) -> None:
    small, large = (
        CanarySplit().to_canary(
            RouterConfig(canary_version="v2", canary_share=share, canary_by=SplitBy.SESSION), session
        )
        for share in sorted((one, other))
    )
    assert large or not small


def test_the_canary_gets_its_share_and_the_rest_stays() -> None:
    async def test() -> None:
        async with cluster(*NAMES) as found:
            await versions_known(found)
            status, _ = await configure(found, canary_version="v2", canary_share=0.25)
            assert (status, versions(found)) == (200, ["v1", "v1", "v2"])
            answered = Counter([await ask(found) for _ in range(80)])
            assert answered == {(200, "v1"): 60, (200, "v2"): 20}
            page = await found.metrics()
            assert 'ref_router_version_requests_total{model_version="v2",status="200"} 20.0' in page
            assert "ref_router_canary_share 0.25" in page

    run(test)


def test_sessions_stay_with_their_version_during_a_canary() -> None:
    async def test() -> None:
        async with cluster(*NAMES) as found:
            await versions_known(found)
            await configure(found, canary_version="v2", canary_share=0.3, canary_by="session")
            seen = {name: {(await ask(found, name))[1] for _ in range(3)} for name in map(str, range(40))}
            assert {len(of) for of in seen.values()} == {1}
            assert {version for of in seen.values() for version in of} == {"v1", "v2"}

    run(test)


def test_a_promoted_version_is_that_of_all_and_a_rolled_back_one_of_none() -> None:
    async def test() -> None:
        async with cluster(*NAMES) as found:
            await versions_known(found)
            await configure(found, canary_version="v2")
            await configure(found, model_version="v2", canary_version="")
            assert versions(found) == ["v2"] * 3
            await configure(found, canary_version="v3")
            assert versions(found) == ["v2", "v2", "v3"]
            await configure(found, canary_version="")
            assert versions(found) == ["v2"] * 3
            await configure(found, model_version="")  # the one that they were started with
            assert versions(found) == ["v1"] * 3

    run(test)


def test_a_refused_version_changes_nothing() -> None:
    async def test() -> None:
        async with cluster(*NAMES) as found:
            await versions_known(found)
            before = found.fleet.config
            status, said = await configure(found, canary_version="refused")
            assert (status, said["error"]) == (409, "wrong-checksum")
            assert (found.fleet.config, versions(found)) == (before, ["v1"] * 3)
            assert await ask(found) == (200, "v1")
            status, said = await configure(found, canary_version="v2")
            assert status == 200
            status, said = await configure(found, canary_version="v3")
            assert (status, said["error"]) == (422, "invalid")
            assert versions(found) == ["v1", "v1", "v2"]

    run(test)


def test_a_replica_that_starts_anew_gets_its_version_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_controller, "TICK", 0.01)

    async def test() -> None:
        async with cluster("a", "b") as found:
            await versions_known(found)
            await configure(found, model_version="v2")
            old = found.pid("a")
            found.supervisor.kill("a")
            await until(lambda: found.pid("a") not in (0, old) and versions(found) == ["v2", "v2"])

    run(test)


def test_a_version_that_an_operator_gives_one_replica_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_controller, "TICK", 0.005)

    async def test() -> None:
        async with cluster("a", "b") as found:
            await until(lambda: all(one.version and not one.fresh for one in found.fleet.statuses()))
            body = {"model": {"version": "v9"}}
            async with found.session.patch(
                f"{found.fleet.known('a').url}/admin/config", json=body, headers=LET_IN
            ) as _:
                await until(lambda: versions(found) == ["v9", "v1"])
            await found.canary._rollout.reconcile()
            assert versions(found) == ["v9", "v1"]

    run(test)


async def judged(found: Cluster, version: str, probe_set: Path) -> tuple[Decision | None, str]:
    """The decision on a canary of that version, under load, and its reason."""
    await versions_known(found)
    status, said = await configure(
        found, canary_version=version, canary_share=0.5, canary_judge=True, probe_set=str(probe_set), canary_slo_ms=250
    )
    assert status == 200, said
    while found.fleet.config.canary_version:
        await asyncio.gather(*(ask(found) for _ in range(8)))
    await until(lambda: found.canary.status().last is not None)
    status_ = found.canary.status()
    return status_.last, status_.reason


@pytest.mark.parametrize(
    ("version", "decision", "reason", "after"),
    [
        ("v2", Decision.PROMOTE, "", "v2"),
        ("failing", Decision.ROLL_BACK, "errors", "v1"),
        ("slow", Decision.ROLL_BACK, "latency", "v1"),
        ("wrong", Decision.ROLL_BACK, "accuracy", "v1"),
    ],
)
def test_a_canary_is_decided_by_what_it_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, decision: Decision, reason: str, after: str
) -> None:
    monkeypatch.setattr(canary_controller, "TICK", 0.02)
    write_probe_set(tmp_path / "probes", [ProbeRequest("x", "right")])

    async def test() -> None:
        async with cluster("a", "b") as found:
            assert await judged(found, version, tmp_path / "probes") == (decision, reason)
            assert versions(found) == [after] * 2
            page = await found.metrics()
            if decision is Decision.PROMOTE:
                assert "ref_router_canary_promotions_total 1.0" in page
            else:
                assert f'ref_router_canary_rollbacks_total{{reason="{reason}"}} 1.0' in page
            assert f'ref_router_version_probes_total{{model_version="{version}"' in page

    run(test)


def test_a_canary_that_is_not_proven_in_time_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_controller, "TICK", 0.01)
    monkeypatch.setattr(canary_controller, "PROOF_SECONDS", 0.05)

    async def test() -> None:
        async with cluster("a", "b") as found:
            await versions_known(found)
            await configure(found, canary_version="v2", canary_judge=True)  # no request, and no probe set
            await until(lambda: found.canary.status().last is not None)
            assert (found.canary.status().last, found.canary.status().reason) == (Decision.ROLL_BACK, "not-proven")
            assert versions(found) == ["v1"] * 2

    run(test)


@pytest.mark.parametrize("content", [b"", b"\n", b"{}", b'{"text": "x"}', b'{"text": "", "intent": "y"}', b"\xff"])
def test_a_bad_probe_set_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "probes").write_bytes(content)
    with pytest.raises(UsageError):
        read_probe_set(tmp_path / "probes")


def test_a_probe_set_that_is_not_there_is_refused_when_it_is_configured() -> None:
    async def test() -> None:
        async with cluster("a") as found:
            status, said = await configure(found, probe_set="/nowhere/probes")
            assert (status, said["error"]) == (422, "invalid")

    run(test)
