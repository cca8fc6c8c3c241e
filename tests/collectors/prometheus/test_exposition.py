"""The text format: a bad line costs that line, and what is no page is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.prometheus import exposition
from latdoctor.collectors.prometheus.exposition import MAX_LINE, parse
from latdoctor.errors import SourceError


def test_names_and_kinds_stand_as_on_the_page() -> None:
    page = parse(b"# HELP a b\n# TYPE a counter\na 1\n# TYPE b_total counter\nb_total 2\n# TYPE c gauge\n", "p")
    assert set(page.samples) == {"a", "b_total"}
    assert page.kinds == {"a": "counter", "b_total": "counter", "c": "gauge"}


def test_values_labels_and_times() -> None:
    page = parse(b'a{z="1",b="x\\"y",} 87 1700000000000\nb 0.870000\nc +Inf\nd NaN\n', "p")
    (sample,) = page.samples["a"]
    assert (sample.value, sample.whole, sample.timestamp) == (87.0, True, 1700000000.0)
    assert sample.labels == (("b", 'x"y'), ("z", "1"))
    assert sample.label("missing") == ""
    assert page.samples["b"][0].whole is False
    assert page.samples["c"][0].value == math.inf
    assert math.isnan(page.samples["d"][0].value)
    assert page.timestamp is None
    assert parse(b"a 1 1000\nb 2 3000\n", "p").timestamp == 3.0


@pytest.mark.parametrize(
    "line",
    [
        b'half{model="x',
        b'half{model="x"}',
        b"half",
        b"half abc",
        b'half{a="1",a="2"} 1',
        b"half{a=1} 1",
        b"9half 1",
        b"# TYPE half",
        b"half " + b"9" * 400,
        b'half{a="' + b"x" * MAX_LINE + b'"} 1',
    ],
)
def test_a_bad_line_costs_only_itself(line: bytes) -> None:
    page = parse(b"# TYPE good gauge\ngood 1\n" + line + b"\nlater 2\n", "p")
    assert {name: samples[0].value for name, samples in page.samples.items()} == {"good": 1.0, "later": 2.0}
    assert [bad.line for bad in page.bad_lines] == [3]


def test_a_half_line_at_the_end_keeps_the_name_of_what_is_lost() -> None:
    page = parse(b'good 1\nhalf_line{model="x', "p")
    assert [(bad.line, bad.name) for bad in page.bad_lines] == [(2, "half_line")]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b'{"status": "success"}', "JSON"),
        (b"[1, 2]", "JSON"),
        (b"\x1f\x8b\x00\x00binary", "binary"),
        (b"404 page not found", "not a metrics page"),
        (b"# only a comment\n", "not a metrics page"),
    ],
)
def test_what_is_no_page_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        parse(raw, "p")
    assert caught.value.where == "p"
    assert caught.value.next_step


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MAX_LINES", 3)
    with pytest.raises(SourceError, match="4 lines, more than the limit of 3"):
        parse(b"a 1\nb 1\nc 1\n", "p")
    monkeypatch.setattr(exposition, "MAX_BYTES", 4)
    with pytest.raises(SourceError, match="more than"):
        parse(b"a 1\nb 1\n", "p")


def test_a_quoted_name_is_no_json() -> None:
    assert parse(b'{"my_metric"} 1\n', "p").samples["my_metric"][0].value == 1.0


LINES = st.text(st.sampled_from('abz_:{}="\\,|#0129.+-eE \tNaInf\r\x00\x85\u2028é'), max_size=30)


@given(st.lists(LINES | st.text(max_size=20), max_size=8))
def test_no_text_breaks_the_reader(lines: list[str]) -> None:
    raw = "\n".join(["good 1", *lines]).encode("utf-8", "surrogatepass")
    try:
        page = parse(raw, "p")
    except SourceError:
        assert b"\x00" in raw
        return
    assert page.samples["good"][0].value == 1.0
    for bad in page.bad_lines:
        assert 2 <= bad.line <= raw.count(b"\n") + 1


PAGES = sorted((Path(__file__).parents[2] / "dialects" / "pages").rglob("*.prom"))
_LABELS = st.lists(
    st.tuples(
        st.sampled_from(("le", "model", "__x", "a", "quantile")),
        st.text(st.sampled_from('ab {}=,.#\\"\tü'), max_size=6),
    ),
    max_size=3,
)
_NUMBERS = st.sampled_from(
    (
        "1",
        "+1",
        "-0",
        "1.",
        ".5",
        "1e3",
        "1E+400",
        "NaN",
        "nan",
        "Inf",
        "-Inf",
        "+inf",
        "1_0",
        "0x1",
        "9" * 400,
        "٣",
        "",
    )
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    listed = ",".join(f'{name}="{value}"' for name, value in draw(_LABELS))
    gap, comma = draw(st.sampled_from((" ", "  ", "\t", ""))), draw(st.sampled_from(("", "", ",", ",,")))
    braces = draw(st.sampled_from((f"{{{listed}{comma}}}", f"{{ {listed} }}", "", "{}")))
    end = draw(st.sampled_from(("", " 1700000000000", " -1", " 1.5", ' # {a="b"} 1', " x", "\t7", "\r")))
    return f"{draw(st.sampled_from(('m', 'a:b', '9m', '', ' m')))}{braces}{gap}{draw(_NUMBERS)}{end}"


_COMMENTS = st.sampled_from(
    ('# HELP m a "quote', "# TYPE m untyped", "# TYPE m odd", "# HELP", "# HELP 9 x", "#TYPE m x", "# EOF", "# x", "#")
)


def _outcome(read: Callable[[str], object], text: str) -> object:
    try:
        return repr(read(text))  # NaN equals itself then
    except (ValueError, IndexError, OverflowError) as error:
        return type(error)


@given(st.lists(st.one_of(lines(), _COMMENTS), max_size=4).map("\n".join))
def test_lines_of_the_usual_form_read_as_by_the_reference_parser(text: str) -> None:
    plain = exposition._plain_samples(text)
    if plain is not None:
        assert repr(plain) == _outcome(exposition._reference_samples, text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_saved_pages_read_as_by_the_reference_parser(path: Path) -> None:
    text = "\n".join(
        exposition._TYPE.sub(r"# TYPE \1 untyped", line) if line.startswith("#") else line
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    )
    assert _outcome(exposition._samples, text) == _outcome(exposition._reference_samples, text)


def test_usual_pages_need_no_reference_parser() -> None:
    text = '# HELP a "b"\n# TYPE a untyped\na{x="1",y="ü, {"} 1.5e-3 1700000000000\n# EOF\n'
    assert exposition._plain_samples(text) is not None
