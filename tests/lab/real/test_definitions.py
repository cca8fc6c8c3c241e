"""The shipped definitions and scenarios are sound, and what is not installed is skipped with a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import DefinitionError, UsageError
from latdoctor.lab.real.real_scenario import BEFORE, INCIDENT, RealScenario, read_scenario, real_scenarios
from latdoctor.lab.real.server_definition import (
    ROOT_VARIABLE,
    find_server,
    installed_in,
    read_definition,
)
from latdoctor.lab.real.server_process import RealServer
from latdoctor.load.mix import RequestContent
from tests.lab.real.toy import TOY, installed

SCENARIOS = {one.id: one for one in real_scenarios()}
KNOWN = {cause.id for cause in shipped().causes}
QUICK_SECONDS = 25 * 60


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_causes_of_the_catalogue_and_leaves_time_to_observe(name: str) -> None:
    scenario = SCENARIOS[name]
    assert {*scenario.causes, *scenario.accepts} <= KNOWN
    assert bool(scenario.causes) == bool(scenario.incident != type(scenario.incident)())
    phases = scenario.phases
    assert phases.window < phases.before
    assert phases.settle + phases.window < phases.incident
    assert find_server(scenario.server).request is not None


def test_every_server_with_scenarios_is_played_healthy_and_in_outages() -> None:
    kinds = {(one.server, bool(one.causes)) for one in SCENARIOS.values()}
    assert kinds == {(server, faulty) for server, _ in kinds for faulty in (True, False)}


def test_the_short_selection_takes_less_than_25_minutes() -> None:
    start_and_stop = 30
    quick = [one for one in SCENARIOS.values() if one.quick]
    assert sum(one.phases.seconds + start_and_stop for one in quick) <= QUICK_SECONDS
    assert len({one.server for one in quick}) >= 4


def test_a_server_that_is_not_installed_is_skipped_with_its_hint(tmp_path: Path) -> None:
    assert ROOT_VARIABLE in TOY.missing(None)
    assert "nothing to install" in TOY.missing(tmp_path)
    assert TOY.missing(installed(tmp_path)) == ""
    router = find_server("vllm-router")
    (tmp_path / "start-vllm-router").write_text("", encoding="utf-8")
    (tmp_path / "start-vllm-router").chmod(0o755)
    assert "xllamacpp" in router.missing(tmp_path), "its replicas are not installed"


def test_the_folder_of_servers_is_an_option_or_in_the_environment(tmp_path: Path) -> None:
    assert installed_in(None, {}) is None
    assert installed_in(None, {ROOT_VARIABLE: str(tmp_path)}) == tmp_path.resolve()
    assert installed_in(tmp_path, {ROOT_VARIABLE: "elsewhere"}) == tmp_path.resolve()
    with pytest.raises(UsageError):
        installed_in(tmp_path / "none", {})


def test_the_version_is_that_of_the_installed_distribution(tmp_path: Path) -> None:
    (tmp_path / "venv/lib/python3.11/site-packages/nvidia_pytriton-0.7.0.dist-info").mkdir(parents=True)
    assert find_server("triton").version(tmp_path) == "0.7.0"
    assert find_server("torchserve").version(tmp_path) == ""


DEFINITION = """\
name: {name}
title: A server
start: [start-it, '{{{place}}}']
ready: http://127.0.0.1:{{port}}/
metrics: []
log: it.log
install: pip install it
"""


@pytest.mark.parametrize(("name", "place", "problem"), [("other", "port", "file's name"), ("it", "port1", "unknown")])
def test_a_bad_definition_is_refused_with_its_problem(tmp_path: Path, name: str, place: str, problem: str) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(DEFINITION.format(name=name, place=place), encoding="utf-8")
    with pytest.raises(DefinitionError, match=problem):
        read_definition(path)
    path.write_text(DEFINITION.format(name="it", place="port"), encoding="utf-8")
    assert read_definition(path).start == ("start-it", "{port}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id: it\nserver: none\ntitle: x\nrate: 1\n", "none"),
        ("id: other\nserver: triton\ntitle: x\nrate: 1\n", "differs"),
        ("id: it\nserver: triton\ntitle: x\nrate: 1\nincident: {faults: [{kind: melt}]}\n", "melt"),
    ],
)
def test_a_bad_scenario_is_refused_with_its_problem(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DefinitionError, match=problem):
        read_scenario(path)


def test_a_service_behind_a_model_is_started_by_this_interpreter(tmp_path: Path) -> None:
    service = find_server("feature-service")
    assert service.program(tmp_path) == Path(sys.executable)
    assert service.missing(tmp_path) == ""
    with RealServer(service, tmp_path, {}) as server:
        assert server.is_alive
        assert (server.pages, server.logs) == ((), ())


def test_only_the_incident_has_its_rate_and_its_body() -> None:
    scenario: RealScenario = SCENARIOS["dynamo-longer-outputs"]
    request = find_server("dynamo").request
    assert request is not None
    template, words = scenario.template(request), RequestContent("short-text", 3, 0, None)
    assert b'"max_tokens":256' in template.content(INCIDENT, words)
    assert b'"max_tokens":16' in template.content(BEFORE, words)
    assert b"$PROMPT" not in template.content(BEFORE, words)
    rates = {phase.name: phase.arrivals.expected(1.0) for phase in SCENARIOS["triton-overload"].plan(1).phases}
    assert rates[INCIDENT] > 5 * rates[BEFORE]
