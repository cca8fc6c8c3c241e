"""What is put into every page: its style, its script, and the charting library."""

from __future__ import annotations

from functools import cache
from importlib import resources

LIBRARY_VERSION = "6.1.0"
# SHA-256 of echarts.min.js, which charts/build.sh makes.
LIBRARY_DIGEST = "f09425167bdd783bc6c86ac34103476dc5a50601b455f5da5ddd6f54499c885e"


@cache
def style() -> str:
    return _read("page.css")


@cache
def script() -> str:
    return _read("page.js")


@cache
def library() -> str:
    """Apache ECharts with the parts that the pages use; its LICENSE and NOTICE lie beside it."""
    return _read("echarts/echarts.min.js")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("files", name).read_text(encoding="utf-8")
