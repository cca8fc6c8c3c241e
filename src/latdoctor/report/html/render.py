"""A page as one HTML file without network access: its style, scripts and data are part of it.

Templates escape every text (`autoescape`), after `clean` removed control characters and shortened it. A
Content-Security-Policy allows the file's own style and scripts by their digests, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from latdoctor.report.html import chart_tables, charts
from latdoctor.report.html.page_model import Chart, Page
from latdoctor.sanitize import clean
from latdoctor.units import percent

LIBRARY_VERSION = "6.1.0"
# SHA-256 of echarts.min.js, which charts/build.sh makes.
LIBRARY_DIGEST = "f09425167bdd783bc6c86ac34103476dc5a50601b455f5da5ddd6f54499c885e"
_MAX_TEXT = 4000  # characters


@cache
def style() -> str:
    """The style sheet."""
    return _read("page.css")


@cache
def script() -> str:
    """The script that draws the charts."""
    return _read("page.js")


@cache
def library() -> str:
    """Apache ECharts with the parts that the pages use; its LICENSE and NOTICE are beside it."""
    return _read("echarts/echarts.min.js")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("files", name).read_text(encoding="utf-8")


def render(page: Page) -> str:
    """The whole file."""
    scripts = (library(), script())
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {_digest(style())}; script-src {' '.join(_digest(script) for script in scripts)}"
    )
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            policy=policy,
            style=style(),
            scripts=scripts,
            library_version=LIBRARY_VERSION,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("latdoctor.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )
    environment.globals["kind"] = lambda value: type(value).__name__
    environment.filters |= {
        "options": _options,
        "percent": percent,
        "rows": charts.rows,
        "summary": chart_tables.summary,
        "table": chart_tables.table,
    }
    return environment


def _printable(value: object) -> str:
    """What a template prints: markup as it is, any other value as clean text, which is escaped afterwards."""
    return value if isinstance(value, Markup) else clean(str(value), _MAX_TEXT)


def _options(chart: Chart) -> Markup:
    """The options of a chart as the value of an attribute."""
    return escape(msgspec.json.encode(charts.options(chart)).decode())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
