"""The real generators of the tests: where they are, or why they are not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def locust_python() -> str:
    """A Python that has latdoctor[locust]; absent locally it skips, absent in CI it fails."""
    named = os.environ.get("LATDOCTOR_LOCUST", "")
    if named and Path(named).is_file():
        return str(Path(named).absolute())
    reason = "no Locust here: name a Python that has latdoctor[locust] in LATDOCTOR_LOCUST"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def k6_program() -> str:
    """k6 itself, which CI does not have: there, Node runs the script with stand-ins for k6's modules."""
    found = os.environ.get("LATDOCTOR_K6") or shutil.which("k6")
    if not found:
        pytest.skip("no k6 here: name the program in LATDOCTOR_K6")
    return str(Path(found).absolute())


def node_program() -> str:
    """Node, for scripts without k6."""
    if not (found := shutil.which("node")):
        pytest.skip("no node here")
    return found
