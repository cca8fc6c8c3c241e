"""Dialect files: all problems at once, each with file and line; and one more file is one more dialect."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.dialects.loader import read_dialects, shipped
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.model import parse_term
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.errors import DefinitionError

GOOD = """\
id: mine
title: My server
recognise: [my_requests_total]
subjects:
  - {id: "model/{model}", parent: server}
signals:
  server.backend: {label: backend, of: my_info}
  completion.rate: {rate: my_requests_total}
  latency: {histogram: my_latency_ms, scale: ms}
"""


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DefinitionError) as caught:
        read_dialects([path])
    return [f"{problem.where.removeprefix(f'{path}:')} {problem.what}" for problem in caught.value.problems]


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """\
id: mine
title: My server
recognise: [my_requests_total]
signals:
  latency.mean: {gauge: my_latency}
  no.such.signal: {gauge: x}
  queue.depth: {gauge: "a b"}
  error.ratio: {ratio: a}
  kv.usage: {gauge: x, rate: y}
  latency: {gauge: x, scale: s}
  itl: {histogram: x, scale: MiB}
  log.xid: {gauge: x}
  gpu.power: {gauge: x, scale: W, colour: red}
"""
    found = problems(tmp_path, text)
    assert [line.split(None, 1)[0] for line in found] == ["5", "6", "7", "8", "9", "10", "11", "12", "13"]
    for expected, line in zip(
        [
            "set its unit with",
            "unknown signal",
            "expected '|'",
            "lacks 'over'",
            "exactly one of",
            "it takes histogram, not gauge",
            "itl needs a time",
            "which metrics pages cannot provide",
            "unknown key 'colour'",
        ],
        found,
        strict=True,
    ):
        assert expected in line


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: mine", "id: Mine", "must be the file's name"),
        ("recognise: [my_requests_total]", "recognise: []", "needs 'recognise'"),
        ("recognise: [my_requests_total]", "recognise: ['a b']", "is not a family's name"),
        ('id: "model/{model}"', "id: model/fixed", "contains no label"),
        ('id: "model/{model}"', 'id: "{model}"', "is not a subject"),
        ("parent: server", 'parent: "node/{node}"', "may only use labels of"),
        ("title: My server\n", "", "lacks 'title'"),
        ("{rate: my_requests_total}", "{rate: [[a]]}", "must be a sample name"),
        ("{rate: my_requests_total}", "{summary: s, quantile: 99, scale: s}", "is not a quantile"),
        ("{rate: my_requests_total}", "{gauge: x, take: median}", "is not one of mean, first, last, max"),
        ("subjects:", "blanks: [{from: 3, to: 2}]\nsubjects:", "must not be greater than"),
        ("subjects:", "bits: [{gauge: x, signals: {gpu.throttle.idle: one}}]\nsubjects:", "is not a bit mask"),
    ],
)
def test_a_wrong_dialect_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    assert any(said in line for line in problems(tmp_path, GOOD.replace(old, new)))


def test_problems_of_several_files_come_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("id: other\n", encoding="utf-8")
    with pytest.raises(DefinitionError) as caught:
        read_dialects(sorted(tmp_path.glob("*.yaml")))
    assert {Path(problem.where.split(":")[0]).name for problem in caught.value.problems} == {"a.yaml", "b.yaml"}


def test_one_more_file_is_one_more_dialect(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD, encoding="utf-8")
    (dialect,) = read_dialects([tmp_path / "mine.yaml"])
    page = parse(
        b'my_requests_total{model="a"} 1\nmy_info{model="a",backend="cpu"} 1\n'
        b'my_latency_ms_bucket{model="a",le="50"} 1\nmy_latency_ms_bucket{model="a",le="+Inf"} 1\n',
        "page",
    )
    assert dialect.speaks(page)
    seen = read_pages(dialect, [ScrapedPage(page, "page", None)], "server/s")
    assert [(one.signal, one.subject, one.value) for one in seen.readings] == [("server.backend", "model/a@s", "cpu")]
    first = seen.distributions[0].buckets[0]
    assert (first.low, first.high, first.count) == (0.0, 0.05, 1.0)


def test_without_positive_proof_there_is_no_backend(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD, encoding="utf-8")
    (dialect,) = read_dialects([tmp_path / "mine.yaml"])
    page = parse(b'my_requests_total{model="a"} 1\nmy_info{model="a",backend=""} 1\n', "page")
    seen = read_pages(dialect, [ScrapedPage(page, "page", None)], "server/s")
    assert not seen.readings
    assert "server.backend" in seen.gaps_by_signal


def test_the_shipped_dialects_are_those_of_the_folder() -> None:
    assert {"dcgm", "torchserve", "triton", "vllm"} <= {dialect.id for dialect in shipped()}


@pytest.mark.parametrize("text", ["", "a{", 'a{b="c"', 'a{b="c",}', "a{b=c}", "a |", "9a", 'a{b=~"c"}', "a b"])
def test_a_wrong_term_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"sample name|filter|expected"):
        parse_term(text)


def test_a_term_reads_back() -> None:
    term = parse_term('new:name{a="b|c",d!="e"} | old_name')
    assert [str(option) for option in term.options] == ['new:name{a="b|c",d!="e"}', "old_name"]
