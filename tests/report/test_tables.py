"""Evidence as tables: every value once, with its type, and absent where it is unknown."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from latdoctor.evidence.model import (
    Bucket,
    Distribution,
    Event,
    Evidence,
    Gap,
    Origin,
    Reading,
    Series,
    Subject,
    Window,
)
from latdoctor.gap_code import GapCode
from latdoctor.report.tables import TableFormat, tables, write_tables
from tests.cli.running import run

INCIDENT = Path(__file__).parents[2] / "fixtures" / "incidents" / "burst.tar.zst"
PAGE = Origin("page", "line 3")
EVIDENCE = Evidence(
    subjects=(Subject("server/a"), Subject("gpu/0", "server/a")),
    readings=(
        Reading("latency.p99", "server/a", 0.25, PAGE, Window(100.0, 110.0), (("route", "chat"),), bound="at least"),
        Reading("latency.p50", "server/a", math.nan, PAGE),
        Reading("model.dtype", "server/a", "fp16", PAGE),
    ),
    series=(Series("arrival.rate", "server/a", (100.0, 105.0), (4.0, 5.0), PAGE),),
    distributions=(Distribution("latency", "server/a", (Bucket(0.0, 0.1, 3.0), Bucket(0.1, math.inf, 2.0)), PAGE),),
    events=(Event("gpu.xid", "gpu/0", PAGE, {"code": 79.0}, 104.5, "NVRM: Xid 79"), Event("gpu.xid", "gpu/0", PAGE)),
    gaps=(Gap("nvml", "no driver", ("gpu.utilization",), next_step="install it", code=GapCode.PERMISSION),),
)


def test_each_value_is_one_row_with_its_time_and_unit() -> None:
    found = tables(EVIDENCE)
    readings = found["readings"].set_index("signal")
    p99 = readings.loc["latency.p99"]
    assert (p99["value"], p99["unit"], p99["bound"], p99["labels"]) == (0.25, "s", "at least", "route=chat")
    assert p99["start"] == pd.Timestamp("1970-01-01T00:01:40Z")
    assert readings.loc["model.dtype", "text"] == "fp16"
    assert list(found["series"]["value"]) == [4.0, 5.0]
    assert list(found["distributions"]["count"]) == [3.0, 2.0]
    assert list(found["events"]["fields"]) == ["code=79.0", ""]
    assert found["gaps"].loc[0, "code"] == GapCode.PERMISSION.value
    assert dict(zip(found["subjects"]["subject"], found["subjects"]["parent"], strict=True))["gpu/0"] == "server/a"


def test_what_is_unknown_is_missing_and_no_zero() -> None:
    found = tables(EVIDENCE)
    assert math.isnan(found["readings"].set_index("signal").loc["latency.p50", "value"])
    assert found["readings"].set_index("signal").loc["latency.p50", "text"] == ""
    assert pd.isna(found["events"].loc[1, "time"])


def test_tables_without_rows_have_the_same_columns_and_types() -> None:
    empty, full = tables(Evidence()), tables(EVIDENCE)
    for name, table in empty.items():
        assert len(table) == 0
        assert dict(table.dtypes) == dict(full[name].dtypes), name


@pytest.mark.parametrize("form", list(TableFormat))
def test_files_are_read_back_as_they_were(tmp_path: Path, form: TableFormat) -> None:
    if form is TableFormat.PARQUET:
        pytest.importorskip("pyarrow")
    found = tables(EVIDENCE)
    written = write_tables(found, tmp_path / "new", form)
    assert {path.stem for path in written} == set(found)
    for path in written:
        if form is TableFormat.PARQUET:
            pd.testing.assert_frame_equal(pd.read_parquet(path), found[path.stem])
        else:
            assert list(pd.read_csv(path).columns) == list(found[path.stem].columns)
            assert len(pd.read_csv(path)) == len(found[path.stem])


def test_a_bundle_is_exported_by_command(tmp_path: Path) -> None:
    outcome = run(["bundle", "export", str(INCIDENT), str(tmp_path / "out"), "--format", "csv"])
    assert outcome.code == 0, outcome.err
    assert "readings.csv: " in outcome.out
    readings = pd.read_csv(tmp_path / "out" / "readings.csv")
    assert "latency.p99" in set(readings["signal"])
    again = run(["bundle", "export", str(INCIDENT), str(tmp_path / "out"), "--format", "csv"])
    assert again.code == 2
