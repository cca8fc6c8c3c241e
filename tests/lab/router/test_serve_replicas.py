"""`latdoctor lab serve --replicas`: how the replicas are started, and the whole of it as processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import ServerConfig, load_config, patched
from latdoctor.lab.server.load_balancing import RouterConfig, parse_router_settings
from latdoctor.lab.server.serve import ServeOptions
from latdoctor.lab.server.serve_replicas import commands, settings

TOKEN = "a-token-of-a-test"  # noqa: S105
WITHIN = 60.0
ODD = patched(
    ServerConfig(),
    {
        "batching": {"buckets": [16, 512], "adaptive_wait": True, "max_waste": 0.125, "scheduler": "no-timer"},
        "memory": {"reuse_buffers": False},
        "model": {"version": "v2=b, c"},
        "dependency": {"address": "http://127.0.0.1:9/a?b=c"},
    },
)


def test_the_replicas_get_every_knob_that_was_turned() -> None:
    assert settings(ServerConfig()) == ()
    assert load_config(None, settings(ODD)) == ODD


@given(wait=st.floats(0, 600_000), ttl=st.floats(0, 86_400), version=st.text("ab=,.- ", min_size=1, max_size=40))
def test_numbers_and_texts_come_through_as_they_are(wait: float, ttl: float, version: str) -> None:
    turned = patched(
        ServerConfig(), {"batching": {"max_wait_ms": wait}, "sessions": {"ttl_s": ttl}, "model": {"version": version}}
    )
    assert load_config(None, settings(turned)) == turned


def test_each_replica_has_its_own_port_and_log_and_the_token_is_hidden() -> None:
    options = ServeOptions(ODD, admin_token=TOKEN, access_log=Path("log.jsonl"), agent=lambda _: ())
    first, second = commands(options, 2)
    assert (first.name, second.name) == ("0", "1")
    assert first.url != second.url
    for number, one in enumerate((first, second)):
        assert {f"--access-log=log.jsonl.{number}", f"--replica={number}", "--fault-agent"} <= {*one.argv}
        assert f"--port={one.url.rpartition(':')[2]}" in one.argv
        assert not any(TOKEN in word for word in one.argv)
        assert one.environment == {"LATDOCTOR_ADMIN_TOKEN": TOKEN}
    plain = commands(ServeOptions(), 1)[0]
    assert not any(word.startswith(("--fault-agent", "--access-log", "--set")) for word in plain.argv)


def test_the_routers_knobs_are_set_apart_from_the_servers() -> None:
    given_ = ["router.policy=weighted", "queue.max_requests=5", "router.weights=0:9, 1:1", "router.sticky=true"]
    config, rest = parse_router_settings(given_)
    assert config == RouterConfig(policy="weighted", weights={"0": 9, "1": 1}, sticky=True)
    assert rest == ("queue.max_requests=5",)


@pytest.mark.parametrize(
    "setting", ["router.sticky", "router.sticky=perhaps", "router.no=1", "router.weights=9", "router.weights=0:-1"]
)
def test_bad_router_knob_is_reported(setting: str) -> None:
    with pytest.raises(UsageError):
        parse_router_settings([setting])


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "latdoctor", "lab", "serve", *arguments]


def test_two_replicas_behind_a_router_start_answer_and_end_in_order(tmp_path: Path) -> None:
    arguments = command(
        *("--port", "0", "--replicas", "2", "--access-log", str(tmp_path / "log"), "--set", "router.sticky=true"),
        *("--set", "model.layers=1", "--set", "model.width=64", "--set", "model.precision=fp32"),
    )
    environment = {**os.environ, "LATDOCTOR_ADMIN_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            router, *replicas = [process.stdout.readline().strip() for _ in range(3)]
            with httpx.Client(base_url=router, timeout=WITHIN, trust_env=False) as client:
                ready = client.get("/readyz").json()
                assert ready["ready"] == 2
                assert list(ready["addresses"].values()) == replicas
                shown = re.findall(r'^ref_router_replica_info\{address="([^"]+)"', client.get("/metrics").text, re.M)
                assert shown == replicas
                for number, url in enumerate(replicas):
                    page = httpx.get(f"{url}/metrics", trust_env=False).text
                    assert re.search(rf'^ref_info\{{.*replica="{number}"', page, re.M)
                    admin = {"authorization": f"Bearer {TOKEN}"}
                    assert httpx.get(f"{url}/admin/config", headers=admin, trust_env=False).status_code == 200
            statuses = asyncio.run(_many(router, process.pid))
            assert (statuses, process.wait(WITHIN)) == ([200] * 40, 0)
            assert (process.stdout.read(), process.stderr.read()) == ("", "")
        finally:
            if process.poll() is None:
                process.kill()
    lines = sum(len((tmp_path / f"log.{number}").read_bytes().splitlines()) for number in range(2))
    assert lines == 40


async def _many(url: str, pid: int) -> list[int]:
    """What happens to requests in the router when it receives SIGTERM."""
    async with httpx.AsyncClient(base_url=url, timeout=WITHIN, trust_env=False) as client:
        asked = [
            asyncio.ensure_future(client.post("/v1/intent", json={"audio_seconds": 20, "session": f"s{number}"}))
            for number in range(40)
        ]
        while "ref_router_in_flight{" not in (page := (await client.get("/metrics")).text) or not re.search(
            r"^ref_router_in_flight\{.*\} [1-9]", page, re.M
        ):
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGTERM)
        return [answer.status_code for answer in await asyncio.gather(*asked)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "router.no=1"], "no"),
        (["--set", "router.weights=7:1"], "no replica 7"),
        (["--host", "0.0.0.0"], "--allow-remote"),  # noqa: S104 - refused
        (["--set", "queue.size=5"], "sets no knob"),
    ],
)
def test_invalid_options_are_reported_before_anything_starts(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        command("--replicas", "2", "--port", "0", *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
