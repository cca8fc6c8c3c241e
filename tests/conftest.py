"""Fixtures every test may use."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A property is never failed for the machine being busy; CI's own profile (fixed seeds) stays the parent there.
# LATDOCTOR_EXAMPLES=1000 looks longer; two hundred properties with a hundred examples each take CI minutes.
EXAMPLES = int(os.environ.get("LATDOCTOR_EXAMPLES", "40"))
settings.register_profile("latdoctor", settings.default, deadline=None, max_examples=EXAMPLES)
settings.load_profile("latdoctor")


def pytest_configure() -> None:
    """Started under `nohup` or with `&`, the tests ignore signals, and so would every process they start.

    A handler is not inherited by a new program, as "ignored" is: the tests ignore as before, what they start does not.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


@pytest.fixture(autouse=True, scope="session")
def _no_state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user who runs the tests may have an incident open and a configuration: no test reads or writes them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LATDOCTOR_STATE", str(tmp_path_factory.mktemp("state") / "of-nobody"))
        patched.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config") / "of-nobody"))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_server_of_this_machine() -> Iterator[None]:
    """Other servers run here, those of other tests among them: what is not named is not found."""
    with pytest.MonkeyPatch.context() as patched:
        # By its module: the package's name `discover` is the function.
        patched.setattr(importlib.import_module("latdoctor.collectors.prometheus.discovery"), "discover", tuple)
        yield


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of other people's sample files; absent locally it skips, absent in CI it fails."""
    named = os.environ.get("LATDOCTOR_SAMPLES", "")
    if named and Path(named).is_dir():
        return Path(named)
    reason = "LATDOCTOR_SAMPLES does not name the folder of sample files"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
