"""A configured target beside sources of the command line: what of it is kept, and what they replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latdoctor.cli.configured_target import settings_of
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import BaselineNeed, resolve_request
from tests.cli import pages
from tests.cli.running import checks, diagnosed, private_file, run, write_trusted

SETTINGS = """
targets:
  shop:
    server: [http://127.0.0.1:9/metrics]
    prometheus: http://prometheus.example:9090
    prometheus_auth: shop.credentials
    select: '{job="shop"}'
    log: [kern.log]
    slo: {p99: 100ms, error_ratio: 1%}
  live:
    server: [http://127.0.0.1:9/metrics]
    log: [app.log]
  saved:
    metrics: [first.prom, last.prom]
    slo: {p99: 100ms}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "first.prom").write_bytes(pages.triton(81_000, seconds_each=0.2))
    (tmp_path / "last.prom").write_bytes(pages.triton(85_000, seconds_each=0.2))
    (tmp_path / "app.log").write_text("[    1.000000] eth0: link up\n")
    private_file(tmp_path / "shop.credentials", "Bearer of-the-shop\n")
    monkeypatch.chdir(tmp_path)
    write_trusted(SETTINGS)
    return tmp_path


LOG, PAGE = Path("app.log"), Path("first.prom")
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("a-log", {"log": (LOG,)}, {"server": 1, "prometheus": True, "select": True, "auth": True}),
    ("a-page", {"metrics": (PAGE,)}, {"server": 0, "prometheus": False, "select": True, "auth": True}),
    ("another-server", {"server": ("http://b:1",)}, {"server": 0, "prometheus": False, "select": True, "auth": True}),
    ("another-history", {"prometheus": "http://b:9090"}, {"server": 0, "prometheus": False, "select": False}),
    (
        "its-own-history",
        {"prometheus": "http://prometheus.example:9090"},
        {"server": 0, "prometheus": False, "select": True, "auth": True},
    ),
    ("a-past-period", {"log": (LOG,), "until": "1h"}, {"server": 0, "prometheus": True, "select": True, "auth": True}),
]


@pytest.mark.parametrize(("options", "kept"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_named_sources_replace(options: dict[str, Any], kept: dict[str, Any]) -> None:
    found = settings_of(SourceOptions(target="shop", **options))
    assert found.slo_p99 == 0.1
    assert len(found.server) == kept["server"]
    assert bool(found.prometheus) == kept["prometheus"]
    assert bool(found.select) == kept["select"]
    assert bool(found.prometheus_auth) == kept.get("auth", False), "credentials are for their own server only"


def test_a_log_beside_a_target_leaves_its_server_and_slo() -> None:
    resolved = resolve_request(SourceOptions(target="shop", log=(LOG,)), BaselineNeed.REQUIRED)
    assert resolved.request.servers == ("http://127.0.0.1:9/metrics",)
    assert resolved.request.logs == (LOG,)
    assert (resolved.context.target, resolved.context.slo_p99, resolved.context.slo_error_ratio) == ("shop", 0.1, 0.01)
    assert [one.collector for one in resolved.named] == ["prometheus", "promql", "logs"]


def test_a_name_that_is_not_configured_names_the_sources() -> None:
    resolved = resolve_request(SourceOptions(target="elsewhere", log=(LOG,)), BaselineNeed.REQUIRED)
    assert (resolved.context.target, resolved.context.slo_p99, resolved.request.servers) == ("elsewhere", None, ())


def test_files_beside_a_target_are_judged_by_its_slo() -> None:
    said = diagnosed("--target", "saved", "--log", "app.log", code=3)
    assert said["target"] == "saved"
    assert "p99-over-slo" in checks(said, "fired"), "the configured pages and SLO were read"
    assert "gpu-xid" in checks(said, "clear"), "the named log was read"


def test_a_server_that_a_past_period_leaves_out_is_reported() -> None:
    done = run(["diagnose", "--target", "live", "--until", "10min"])
    assert "live: http://127.0.0.1:9/metrics is not read: --until selects a period that is over" in done.err
