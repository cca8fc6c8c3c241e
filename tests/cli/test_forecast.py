"""`latdoctor forecast`: its sources, its documents, its exit codes."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from latdoctor.planning.forecast import candidates
from latdoctor.planning.forecast.result import NoForecast
from latdoctor.report.forecast import forecast_schema
from tests.cli.running import run
from tests.cli.test_one_screen import check
from tests.collectors.access_log.test_arrival_history import START, nginx
from tests.collectors.promql.history import END, HOUR, openmetrics
from tests.collectors.promql.real import prometheus
from tests.planning.forecast.series import noisy_days, random_walk, series

ROOT = Path(__file__).parents[2]
SERVEGEN = ROOT / "fixtures" / "forecast" / "servegen-m-large.csv"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(SERVEGEN, tmp_path / "rates.csv")
    monkeypatch.setattr(candidates, "find_spec", lambda name: None if name == "torch" else object())


def write(values: object, name: str = "own.csv") -> str:
    found = series(values)  # type: ignore[arg-type]
    rows = [f"{time:.0f},{value}" for time, value in zip(found.times, found.values, strict=True)]
    Path(name).write_text("\n".join(["time,value", *rows, ""]))
    return name


def test_the_json_document_keeps_to_its_schema_and_has_the_promised_keys() -> None:
    outcome = run(["forecast", "--csv", "rates.csv", "--ahead", "10min", "--per-replica", "80", "-o", "json"])
    assert outcome.code == 0
    document = json.loads(outcome.out)
    jsonschema.validate(document, forecast_schema())
    assert document["schema_version"] == "1"
    assert document["method"] == "last-value"
    assert document["mase"] <= 0.31
    assert document["pinball"] > 0
    assert document["plan"]["replicas"] == 6
    assert [one["not_tried"] for one in document["methods"]] == [None, None, None, None, "torch-missing"]


def test_a_history_that_is_no_basis_is_a_document_too() -> None:
    outcome = run(["forecast", "--csv", write([3.0] * 500), "-o", "json"])
    document = json.loads(outcome.out)
    jsonschema.validate(document, forecast_schema())
    assert (outcome.code, document["no_forecast"], document["value"]) == (4, "constant", None)


def test_the_shipped_schema_is_that_of_the_type() -> None:
    assert json.loads((ROOT / "docs" / "forecast.schema.json").read_text()) == json.loads(json.dumps(forecast_schema()))


def test_a_missing_torch_is_said() -> None:
    answer = run(["forecast", "--csv", "rates.csv", "--ahead", "10min"]).out
    assert "LSTM not used: torch is not installed (pip install 'latdoctor[lab]')" in answer


def test_an_lstm_that_is_no_better_is_said_not_to_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    outcome = run(["forecast", "--csv", str(SERVEGEN), "--ahead", "10min"])
    assert "LSTM not used: the last value is better here" in " ".join(outcome.out.split())
    check(outcome.out)


@pytest.mark.parametrize(
    "given",
    [
        ["--since", "1970-01-09T00:00:00Z"],
        ["--until", "1970-01-01T04:00:00Z"],
        ["--per-replica", "80/s", "--replicas", "9"],
        ["--per-replica", "80/s", "--replicas", "1", "--start-up", "5min", "--reserve", "10%"],
        ["--counts", "--ahead", "1h"],
    ],
)
def test_every_answer_fits_one_screen(given: list[str]) -> None:
    outcome = run(["forecast", "--csv", "rates.csv", *given])
    assert outcome.code in (0, 4)
    check(outcome.out)


def test_the_answer_says_how_many_replicas_to_start_and_by_when() -> None:
    given = ["--per-replica", "80/s", "--replicas", "3", "--start-up", "5min"]
    answer = run(["forecast", "--csv", "rates.csv", "--ahead", "10min", *given]).out
    assert "start 3 replicas by 23:55 UTC" in answer


def test_an_access_log_is_forecast_in_requests_a_second() -> None:
    """An hour and a half of about three requests a second."""
    times = [START + 0.3 * place for place in range(18_000)]
    Path("access.log").write_text(nginx(times))
    outcome = run(["forecast", "--log", "access.log", "--ahead", "5min", "-o", "json"])
    document = json.loads(outcome.out)
    assert outcome.code == 0, outcome.err
    assert document["unit"] == "/s"
    assert document["value"] == pytest.approx(3.33, rel=0.02)
    assert "no-daily-season" in document["notes"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url


WHEN = [
    *("--since", datetime.datetime.fromtimestamp(END - HOUR, datetime.UTC).isoformat()),
    *("--until", datetime.datetime.fromtimestamp(END, datetime.UTC).isoformat()),
]


def test_a_history_in_prometheus_is_forecast(server: str) -> None:
    outcome = run(["forecast", "--prometheus", server, *WHEN, "--ahead", "1min", "-o", "json"])
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["unit"] == "/s"
    assert document["history"]["step"] == 60
    assert 6 < document["value"] < 10
    assert "vllm:request_success_total" in document["source"]


def test_a_history_that_ended_long_ago_is_stale(server: str) -> None:
    query = "sum(rate(vllm:request_success_total[2m]))"
    later = datetime.datetime.fromtimestamp(END + HOUR, datetime.UTC).isoformat()
    outcome = run(["forecast", "--prometheus", server, "--query", query, "--since", "2h", "--until", later])
    assert outcome.code == 4
    assert outcome.out.startswith("NO FORECAST")
    assert "so long ago that the time to forecast is past" in " ".join(outcome.out.split())


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ([], "no history is named"),
        (["--csv", "rates.csv", "--log", "x.log"], "only one history can be read"),
        (["--csv", "rates.csv", "--query", "up"], "--query is for --prometheus"),
        (["--csv", "rates.csv", "--select", "{}"], "--select is for --prometheus"),
        (["--log", "x.log", "--counts"], "--counts is for --csv"),
        (["--csv", "rates.csv", "--log-pattern", "{time}"], "--log-pattern is for --log"),
        (["--prometheus", "127.0.0.1:9", "--query", "up", "--select", "{a='b'}"], "--select is for a recognised rate"),
        (["--prometheus", "127.0.0.1:9", "--select", "{a='b'}"], "--select: "),
        (["--csv", "rates.csv", "--ahead", "soon"], "--ahead: 'soon' is not a"),
        (["--csv", "rates.csv", "--ahead", "5h"], "--ahead: must be greater than 0 and at most 4h"),
        (["--csv", "rates.csv", "--ahead", "0s"], "--ahead: must be greater than 0"),
        (["--csv", "rates.csv", "--per-replica", "0"], "--per-replica: must be a rate above 0"),
        (["--csv", "rates.csv", "--per-replica", "3ms"], "--per-replica: must be a rate above 0"),
        (["--csv", "rates.csv", "--per-replica", "3", "--reserve", "100%"], "--reserve: must be less than 100%"),
        (["--csv", "rates.csv", "--per-replica", "3", "--start-up", "x"], "--start-up: 'x' is not a"),
        (["--csv", "rates.csv", "--replicas", "3"], "are for --per-replica"),
        (["--csv", "rates.csv", "--since", "1h", "--until", "0s", "--since", "0s"], "--since: is not before --until"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(given: list[str], what: str) -> None:
    outcome = run(["forecast", *given])
    assert (outcome.code, outcome.out) == (2, "")
    assert what in outcome.err


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (["--csv", "none.csv"], "none.csv: cannot be read"),
        (["--log", "none.log"], "none.log: does not exist"),
        (["--prometheus", "127.0.0.1:9", "--query", "up"], "127.0.0.1:9: "),
    ],
)
def test_a_history_that_cannot_be_read_is_an_error(given: list[str], what: str) -> None:
    outcome = run(["forecast", *given])
    assert (outcome.code, outcome.out) == (1, "")
    assert what in outcome.err


@pytest.mark.parametrize(
    ("values", "reason"), [([4.0], NoForecast.EMPTY), (random_walk(30), NoForecast.SHORT), ([3.0] * 900, "constant")]
)
def test_no_forecast_says_why_and_what_next(values: object, reason: str) -> None:
    outcome = run(["forecast", "--csv", write(values)])
    assert outcome.code == 4
    assert outcome.out.startswith("NO FORECAST")
    assert " Next  " in outcome.out
    check(outcome.out)
    assert json.loads(run(["forecast", "--csv", "own.csv", "-o", "json"]).out)["no_forecast"] == reason


def test_gaps_are_said_with_their_share() -> None:
    values = noisy_days(4)
    values[400:500] = float("nan")
    assert "9 % of them without a value" in " ".join(run(["forecast", "--csv", write(values)]).out.split())
