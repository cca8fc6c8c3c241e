"""CUDA error codes as data (`cuda_errors.yaml`), and finding the one that a line of text speaks of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latdoctor.errors import DefinitionError, Problem
from latdoctor.yamlfile import Fields, load

_FILE = Path(__file__).parent / "cuda_errors.yaml"


@dataclass(frozen=True, slots=True)
class CudaCode:
    """One error code: `sticky` kills the process's context, `driver` says that driver and toolkit do not fit."""

    code: int
    name: str
    driver_name: str
    text: str
    sticky: bool
    driver: bool


@cache
def codes() -> Mapping[int, CudaCode]:
    """Every catalogued code. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = load(_FILE)
    found: dict[int, CudaCode] = {}
    for key, node in (root.value if isinstance(root.value, dict) else {}).items():
        fields = Fields(node, problems, f"CUDA error {key}")
        found[int(key)] = CudaCode(
            code=int(key),
            name=fields.text("name", required=True),
            driver_name=fields.text("driver_name"),
            text=fields.text("text", required=True),
            sticky=fields.flag("sticky"),
            driver=fields.flag("driver"),
        )
        fields.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def by_name(name: str) -> CudaCode | None:
    """The code that the runtime (`cudaErrorIllegalAddress`) or the driver API (`CUDA_ERROR_…`) calls `name`."""
    return _names().get(name)


def by_text(text: str) -> CudaCode | None:
    """The code whose printed text stands in `text`; the longest one where several do."""
    found = _texts().search(text)
    return _by_lower_text()[found[0].lower()] if found else None


@cache
def _names() -> Mapping[str, CudaCode]:
    return {name: row for row in codes().values() for name in (row.name, row.driver_name) if name}


@cache
def _by_lower_text() -> Mapping[str, CudaCode]:
    return {row.text.lower(): row for row in codes().values()}


@cache
def _texts() -> re.Pattern[str]:
    longest_first = sorted(_by_lower_text(), key=len, reverse=True)
    return re.compile("|".join(re.escape(text) for text in longest_first), re.IGNORECASE)
