"""A saved plan is made again before it is shown or executed: an edited file is refused, whatever its digest says."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latdoctor.cli.plan_files import SavedPlan, load_plan
from latdoctor.remediation.plan_comparison import differences, saved_settings
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook_library import shipped
from latdoctor.report.remediation_plan import Planned, plan_answer
from tests.cli.admin_server import Admin, admin
from tests.cli.remediation_stub import SlowService, slow_service
from tests.cli.running import Outcome, run, write_trusted

REFUSED = 5
TOKEN = "hush-hush"  # noqa: S105 - guards nothing
PLAN = Path("plan.json")


@pytest.fixture
def service(apart: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowService]:
    """A server with a saved plan in plan.json."""
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", TOKEN)
    with slow_service(monkeypatch) as running:
        saved = remediate("--playbook", "promo-rush-sop", "--server", running.url, "--save-plan", "plan.json")
        assert saved.code == 0, saved.err
        yield running


@pytest.fixture
def attacker() -> Iterator[Admin]:
    with admin() as server:
        yield server


def remediate(*arguments: str) -> Outcome:
    return run(["remediate", "--slo", "500ms", *arguments])


def edit(change: Callable[[Any], None]) -> None:
    """Edits plan.json and makes its digest anew, as the program would."""
    document = json.loads(PLAN.read_text())
    change(document["plan"])
    plan = msgspec.convert(document["plan"], Plan)
    PLAN.write_bytes(msgspec.json.encode(SavedPlan(plan.digest, plan)))


def put(*path: str | int, value: object) -> Callable[[Any], None]:
    def change(plan: Any) -> None:
        for step in path[:-1]:
            plan = plan[step]
        plan[path[-1]] = value

    return change


def first_change(name: str, value: object) -> Callable[[Any], None]:
    return put("stages", 0, "changes", 0, name, value=value)


def add_field(plan: Any) -> None:
    plan["stages"][0]["changes"][0]["fields"].append({"name": "governance.lanes", "before": False, "after": True})


def add_step(plan: Any) -> None:
    changes = plan["stages"][0]["changes"]
    changes.append({**changes[0], "step": "more", "fields": [{"name": "x", "before": None, "after": 1}]})


def leave_out_field(plan: Any) -> None:
    del plan["stages"][0]["changes"][0]["fields"][0]


def leave_out_stage(plan: Any) -> None:
    del plan["stages"][2]


EDITS: dict[str, tuple[Callable[[Any], None], str]] = {
    "another knob": (add_field, "stages[0].changes[0].fields: "),
    "another step": (add_step, "stages[0].changes: "),
    "another value": (put("stages", 0, "changes", 0, "fields", 0, "after", value="single"), ".fields[0].after: single"),
    "another old value": (put("stages", 0, "changes", 0, "fields", 0, "before", value="x"), ".fields[0].before: x"),
    "a field left out": (leave_out_field, "stages[0].changes[0].fields: "),
    "a stage left out": (leave_out_stage, "stages: "),
    "no undo": (first_change("undo", "none-needed"), "stages[0].changes[0].undo: none-needed in the file, restore now"),
    "another action": (first_change("action", "http.json.set"), "stages[0].changes[0].action: http.json.set"),
    "another resource": (first_change("resource", "http://127.0.0.1:9/x"), "stages[0].changes[0].resource: "),
    "another step name": (first_change("step", "harmless"), "stages[0].changes[0].step: harmless"),
    "a caution": (first_change("caution", "all is well"), "stages[0].changes[0].caution: all is well"),
    "another title": (put("title", value="Do nothing"), "title: Do nothing in the file"),
    "another effect": (put("effect", value="none"), "effect: none in the file"),
    "another risk": (put("risk", value="low"), "risk: low in the file, medium now"),
    "another disruption": (put("disruption", value="none"), "disruption: none in the file"),
    "another playbook's digest": (put("playbook_digest", value="0" * 64), "playbook_digest: 000"),
    "another stage's playbook": (put("stages", 0, "playbook", value="x"), "stages[0].playbook: x in the file"),
    "another name": (put("target", "name", value="shop"), "target.name: shop in the file"),
    "more is allowed": (put("target", "allow", value=["http://127.0.0.1:9/"]), "target.allow: 1 entries in the file"),
    "another kind": (put("target", "kind", value="http"), "target.kind: http in the file, reference now"),
    "a configured token": (put("target", "configured", value="shop"), "target.configured: shop in the file"),
    "a process": (put("target", "pid", value=1), "target.pid: 1 in the file, 0 now"),
    "a cause of another playbook": (
        put(
            "because",
            value={"run_id": "r", "cause": "infra.gpu.clocks", "probability": 0.99, "seen": 0.0, "places": []},
        ),
        "because.cause: infra.gpu.clocks, which the playbook does not address",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_plan_is_refused_with_the_field_that_differs(name: str, service: SlowService) -> None:
    change, field = EDITS[name]
    edit(change)
    target = ("--admin", service.url, "--server", service.url)
    for more in ((), ("--apply", "--yes")):
        outcome = remediate("--plan", "plan.json", *target, *more, "-o", "json")
        assert outcome.code == REFUSED, outcome.err
        (result,) = json.loads(outcome.out)["results"]
        assert "the saved plan is not what playbook, parameters and configuration give now: " in result["reason"]
        assert field in result["reason"]
        assert (result["code"], result["next_step"]) == ("plan", "plan again")
    assert service.revision == 1


def test_an_edited_parameter_is_refused(service: SlowService) -> None:
    for name, value in (("max_batch_tokens", 999_999_999), ("another", 1)):
        edit(put("stages", 0, "parameters", name, value=value))
        outcome = remediate("--plan", "plan.json", "--server", service.url, "--apply", "--yes")
        assert outcome.code in (2, REFUSED)
    assert service.revision == 1


def test_another_host_is_sent_nothing(service: SlowService, attacker: Admin, apart: Path) -> None:
    def to_attacker(plan: Any) -> None:
        text = json.dumps(plan).replace(service.url, attacker.url)
        plan.clear()
        plan.update(json.loads(text))

    edit(to_attacker)
    write_trusted(f"targets: {{shop: {{server: ['{service.url}'], admin: ['{service.url}']}}}}\n")
    for target in ((), ("--server", service.url), ("--admin", service.url), ("--target", "shop")):
        for more in ((), ("--apply", "--yes")):
            outcome = remediate("--plan", "plan.json", *target, *more)
            assert (outcome.code, outcome.out) == (2, "")
            assert f"it changes {attacker.url}, which neither the options nor the configuration name" in outcome.err
    assert attacker.tokens == []
    assert service.revision == 1


def test_a_process_is_named_again(service: SlowService) -> None:
    edit(put("target", value={"name": "process 1", "kind": "process", "pid": 1}))
    for options in ((), ("--pid", "2")):
        outcome = remediate("--plan", "plan.json", *options, "--apply", "--yes")
        assert outcome.code == 2
        assert "it changes process 1, which neither the options nor the configuration name" in outcome.err


# --- an unedited plan


def test_an_unedited_plan_is_shown_and_executed(service: SlowService) -> None:
    shown = remediate("--plan", "plan.json", "--server", service.url)
    assert (shown.code, shown.err) == (0, "")
    assert f"promo-rush-sop on {service.url}/admin/config (reference)\n" in shown.out
    full = remediate("--plan", "plan.json", "--server", service.url, "-v")
    assert f"at {service.url}/admin/config\n" in full.out
    outcome = remediate("--plan", "plan.json", "--server", service.url, "--apply", "--yes")
    assert outcome.code == 0, outcome.out + outcome.err
    assert service.revision == 4


def test_a_target_that_was_changed_since_is_reported_as_that(service: SlowService) -> None:
    assert remediate("--playbook", "app.batching.token-budget", "--server", service.url, "--apply", "--yes").code == 0
    before = service.revision
    outcome = remediate("--plan", "plan.json", "--server", service.url, "-o", "json")
    assert outcome.code == REFUSED
    (result,) = json.loads(outcome.out)["results"]
    assert result["reason"] == f"{service.url}/admin/config was modified after the plan was made"
    assert service.revision == before


def test_parameters_are_found_again_in_the_stages(service: SlowService, apart: Path) -> None:
    outcome = remediate(
        "--playbook",
        "promo-rush-sop",
        "--server",
        service.url,
        "--set",
        "max_batch_tokens=2048",
        "--save-plan",
        "p.json",
    )
    assert outcome.code == 0, outcome.err
    playbook = shipped().find("promo-rush-sop")
    assert saved_settings(load_plan(Path("p.json")), playbook, shipped())["max_batch_tokens"] == "2048"
    assert remediate("--plan", "p.json", "--server", service.url).code == 0


def test_equal_plans_made_at_different_times_do_not_differ(service: SlowService) -> None:
    plan = load_plan(PLAN)
    assert differences(plan, msgspec.structs.replace(plan, created_at=0.0)) == []


def test_one_is_not_true(service: SlowService) -> None:
    plan = load_plan(PLAN)
    stage = plan.stages[0]
    one, true = (
        msgspec.structs.replace(plan, stages=(msgspec.structs.replace(stage, parameters={"x": value}),))
        for value in (1, True)
    )
    assert differences(one, true) == ["stages[0].parameters.x: 1 in the file, true now"]


# --- the file


def test_a_plan_is_written_for_its_user_alone(service: SlowService) -> None:
    assert stat.S_IMODE(PLAN.stat().st_mode) == 0o600
    again = remediate("--playbook", "promo-rush-sop", "--server", service.url, "--save-plan", "plan.json")
    assert again.code == 2
    assert "File exists" in again.err


@pytest.mark.parametrize(
    ("mode", "said"), [(0o644, "can be read by other users"), (0o620, "can be written by other users")]
)
def test_a_warning_where_others_have_access_to_a_plan(mode: int, said: str, service: SlowService) -> None:
    PLAN.chmod(mode)
    outcome = remediate("--plan", "plan.json", "--server", service.url)
    assert outcome.code == 0
    assert outcome.err == f"plan.json {said}. Next: chmod 600 plan.json\n"


def test_a_pipe_is_no_plan(service: SlowService) -> None:
    os.mkfifo("pipe")
    outcome = remediate("--plan", "pipe", "--server", service.url)
    assert outcome.code == 2
    assert "it is a pipe" in outcome.err


def test_each_url_that_a_plan_writes_to_is_shown(service: SlowService) -> None:
    plan = load_plan(PLAN)
    changes = tuple(
        msgspec.structs.replace(plan.changes[0], resource=f"http://127.0.0.1:9/flags/{number}") for number in range(5)
    )
    several = msgspec.structs.replace(plan, stages=(msgspec.structs.replace(plan.stages[0], changes=changes),))
    planned = Planned(several, shipped().find(plan.playbook))
    lines = [line.text for line in plan_answer([planned])]
    for number in range(3):
        assert f" Changes http://127.0.0.1:9/flags/{number}" in lines
    assert "         and 2 more: -v" in lines
