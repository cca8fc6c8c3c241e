"""The shipped alert rules: sound by promtool, firing and silent as their series say, and of metrics that there are.

`<server>.test.yml` are promtool's own test files: series, and the alerts that fire at the end of them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from latdoctor.collectors.prometheus import exposition
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.model import Dialect
from latdoctor.incident import prometheus_rules
from tests.cli.running import run
from tests.collectors.promql.real import binaries

HERE = Path(__file__).parent
PAGES = HERE.parent / "dialects" / "pages"
NAMES = tuple(prometheus_rules.files())
DIALECTS = {dialect.id: dialect for dialect in shipped()}
OWN = {"up", "latdoctor:slo_p99_seconds", "latdoctor:slo_error_ratio"}
TARGET = {"job", "instance"}  # Prometheus puts them on every sample
# Pages of real servers among the samples, by the dialect that they speak.
SAVED = {
    "bentoml": "captured/bentoml.prom",
    "dcgm": "transcribed/dcgm_datadog_t4_idle.prom",
    "node-exporter": "captured/node-exporter.prom",
    "torchserve": "torchserve/torchserve_docs_metrics_api.prom",
    "triton": "captured/triton.prom",
    "vllm": "transcribed/vllm_datadog_opt125m.prom",
}
# What those pages do not show: names since DCGM 4.6, fields that are off as the exporter comes, quantiles that are off
# in Triton, and a queue that only newer Tritons tell of.
UNSHOWN = {
    "dcgm": {
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_FB_FREE_BYTES",
        "DCGM_FI_DEV_FB_USED_BYTES",
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
        "DCGM_FI_DEV_ROW_REMAP_FAILED",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "DCGM_FI_DEV_XID_ERROR",
    },
    "triton": {"nv_inference_request_summary_us", "nv_inference_pending_request_count"},
}


def test_every_dialect_has_its_alerts() -> None:
    assert set(NAMES) == set(DIALECTS)
    assert sorted(path.name.removesuffix(".test.yml") for path in HERE.glob("*.test.yml")) == sorted(NAMES)


@pytest.fixture(scope="module")
def promtool() -> str:
    return binaries()[1]


def test_promtool_finds_them_sound(promtool: str) -> None:
    paths = [str(path) for path in prometheus_rules.files().values()]
    done = subprocess.run([promtool, "check", "rules", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_they_fire_and_are_silent_as_their_series_say(promtool: str, name: str) -> None:
    done = subprocess.run(
        [promtool, "test", "rules", f"{name}.test.yml"], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_fires_in_a_case_and_each_server_is_silent_in_one(name: str) -> None:
    cases = yaml.safe_load((HERE / f"{name}.test.yml").read_text())["tests"]
    fired = [frozenset(_fired(case)) for case in cases]
    assert frozenset() in fired
    assert frozenset.union(*fired) == set(prometheus_rules.alerts(prometheus_rules.text(name)))


def _fired(case: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
    (asked,) = case["promql_expr_test"]
    return [sample["labels"].split('"')[1] for sample in asked["exp_samples"]]


def rules(name: str) -> list[dict[str, str]]:
    (group,) = yaml.safe_load(prometheus_rules.text(name))["groups"]
    found: list[dict[str, str]] = group["rules"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_who_cannot_look_says_so(name: str) -> None:
    assert {"TargetDown", "MetricsAbsent"} <= set(prometheus_rules.alerts(prometheus_rules.text(name)))


STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
WITHIN = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
LISTED = re.compile(r"\b(by|on|ignoring|group_left|group_right|without)\s*\(([^)]*)\)")
WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b")
KEYWORDS = {"and", "or", "unless", "by", "on", "offset", "bool", "group_left"}


def metrics(expr: str) -> set[str]:
    """The names of the metrics that an expression asks for."""
    bare = LISTED.sub(" ", WITHIN.sub("", STRING.sub("", expr)))
    bare = re.sub(r"[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(", "(", bare)  # functions
    return set(re.findall(r"(?<![\w.])[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - KEYWORDS


def told(dialect: Dialect) -> set[str]:
    """Every name that the dialect reads, with what a histogram is made of."""
    found = set(dialect.recognise)
    for rule in (rule for options in dialect.rules for rule in options):
        names = {option.name for term in (*rule.terms, *rule.over, *rule.less, *rule.held) for option in term.options}
        found |= names
        if rule.kind in ("histogram", "summary"):
            found |= {name + end for name in names for end in ("_bucket", "_sum", "_count")}
    return found | {
        name for bits in dialect.bits for term in bits.rule.terms for name in (o.name for o in term.options)
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_one_of_the_dialect(name: str) -> None:
    asked = {rule.get("alert", ""): metrics(str(rule["expr"])) for rule in rules(name) if "alert" in rule}
    assert all(asked.values())
    known = told(DIALECTS[name]) | OWN
    assert {alert: names - known for alert, names in asked.items() if names - known} == {}


@pytest.mark.parametrize("name", sorted(SAVED))
def test_every_metric_is_on_the_page_of_a_real_server(name: str, samples: Path) -> None:
    page = exposition.parse((samples / "metrics" / SAVED[name]).read_bytes(), name)
    shown = {*page.samples, *page.kinds, *(f"{family}_total" for family in page.kinds)}
    asked = set().union(*(metrics(str(rule["expr"])) for rule in rules(name) if "alert" in rule))
    lacking = {metric for metric in asked - OWN if not {metric, _family(metric)} & shown}
    assert lacking <= UNSHOWN.get(name, set())


def _family(metric: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", metric)


@pytest.mark.parametrize("name", NAMES)
def test_labels_that_are_asked_for_are_on_a_page(name: str) -> None:
    page = exposition.parse((PAGES / name / "last.prom").read_bytes(), name)
    labels = {label for found in page.samples.values() for sample in found for label, _ in sample.labels}
    for rule in rules(name):
        listed = {word.strip() for _, words in LISTED.findall(str(rule["expr"])) for word in words.split(",")}
        matched = set(re.findall(r'[{,]\s*([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)"', str(rule["expr"])))
        assert listed | matched - {"server"} <= labels | TARGET | {"", "le", "quantile", "server"}


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_says_whom_it_is_about_and_how_bad(name: str) -> None:
    for rule in yaml.safe_load(prometheus_rules.text(name))["groups"][0]["rules"]:
        if "alert" not in rule:
            continue
        assert rule["labels"] == {"severity": rule["labels"]["severity"], "server": name}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["alert"] == "MetricsAbsent" or "$labels.instance" in rule["annotations"]["summary"]


def test_another_slo_is_written_in() -> None:
    shown = run(["alerts", "show", "vllm", "--slo", "800ms", "--slo-errors", "2%"])
    assert shown.code == 0, shown.err
    records = {
        rule["record"]: rule["expr"] for rule in yaml.safe_load(shown.out)["groups"][0]["rules"] if "record" in rule
    }
    assert records == {"latdoctor:slo_p99_seconds": "vector(0.8)", "latdoctor:slo_error_ratio": "vector(0.02)"}
    assert run(["alerts", "show", "vllm"]).out == prometheus_rules.text("vllm")


def test_they_are_listed() -> None:
    listed = run(["alerts", "list"])
    assert listed.code == 0, listed.err
    assert all(name in listed.out for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "vlm"], "did you mean vllm"),
        (["show", "dcgm", "--slo", "1s"], "have no SLO"),
        (["show", "vllm", "--slo", "fast"], "--slo"),
        (["show", "vllm", "--slo-errors", "200%"], "--slo-errors"),
        (["write", "nothing", "--to", "x"], "no alert rules for"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    outcome = run(["alerts", *arguments])
    assert outcome.code == 2
    assert said in outcome.err


def test_what_somebody_changed_is_never_overwritten(tmp_path: Path) -> None:
    assert run(["alerts", "write", "vllm", "dcgm", "--to", str(tmp_path / "r")]).code == 0
    path = tmp_path / "r" / "vllm.rules.yml"
    assert path.read_text() == prometheus_rules.text("vllm")
    assert run(["alerts", "write", "vllm", "--to", str(tmp_path / "r")]).code == 0
    again = run(["alerts", "write", "tgi", "vllm", "--to", str(tmp_path / "r"), "--slo", "1s"])
    assert again.code == 2
    assert "differs" in again.err
    assert not (tmp_path / "r" / "tgi.rules.yml").exists()


def test_all_are_written_with_the_slo_where_there_is_one(tmp_path: Path) -> None:
    assert run(["alerts", "write", "--to", str(tmp_path), "--slo", "2s"]).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.rules.yml" for name in NAMES)
    assert "vector(2)" in (tmp_path / "tei.rules.yml").read_text()


@pytest.mark.parametrize("command", [["alerts", "show", "vllm"], ["diagnose", "--metrics", "page.prom"]])
def test_a_promise_of_no_time_at_all_is_refused(command: list[str]) -> None:
    outcome = run([*command, "--slo", "0s"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "--slo: '0s' is not a time above 0 s" in outcome.err
    assert "--slo 500ms" in outcome.err
