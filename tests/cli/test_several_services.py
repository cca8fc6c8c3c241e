"""Without a source, several services of one machine are diagnosed each by itself and never together."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.prometheus.discovery import DiscoveredPage
from tests.cli.running import run

FOUND = (
    DiscoveredPage("http://127.0.0.1:9/metrics", "Triton", ("triton",), (), None, ("intent",)),
    DiscoveredPage("http://127.0.0.1:11/metrics", "vLLM", ("vllm",), (), None, ("chat",)),
)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("latdoctor.cli.resolve_request.local_pages", lambda: FOUND)


def test_each_service_is_diagnosed_with_its_own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosed: list[tuple[str, ...]] = []
    codes = {FOUND[0].url: 0, FOUND[1].url: 3}

    from latdoctor.cli import diagnose

    once = diagnose._once

    def fake(bundle, sources, rules, how):  # type: ignore[no-untyped-def]
        if not sources.server:
            return once(bundle, sources, rules, how)
        diagnosed.append(sources.server)
        return codes[sources.server[0]]

    monkeypatch.setattr(diagnose, "_once", fake)
    done = run(["diagnose"])
    assert diagnosed == [(FOUND[0].url,), (FOUND[1].url,)]
    assert done.code == 3, "the worst of both"
    assert "Triton (intent)" in done.err
    assert "vLLM (chat)" in done.err


ONE_ANSWER = [
    ["diagnose", "-o", "json"],
    ["diagnose", "--keep", "kept"],
    ["diagnose", "--watch"],
    ["collect", "--to", "b"],
]


@pytest.mark.parametrize("arguments", ONE_ANSWER, ids=[" ".join(one) for one in ONE_ANSWER])
def test_what_has_room_for_one_service_names_the_services(arguments: list[str]) -> None:
    done = run(arguments)
    assert done.code == 2
    assert "2 inference services are on this machine" in done.err
    assert all(page.url in done.err for page in FOUND)
