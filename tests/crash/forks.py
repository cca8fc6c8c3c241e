"""Runs `tests.crash.mending` again and again, each time in a child of its own, and kills it where it is told to.

Usage: python -m tests.crash.forks      (a line of JSON in: `Asked`; one out)

What takes longest of a short command is to load Python and its packages. Here that is done once, before the fork; what
is journaled, sent and killed is done by a whole process each time, as in `sweep`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx  # noqa: F401 - what a run loads late is loaded here

from latdoctor.errors import LatdoctorError
from tests.crash import mending, tracer


@dataclass(frozen=True)
class Asked:
    """What `tracer.forked` is given, and the arguments of `tests.crash.mending`."""

    k: int
    calls: Sequence[str]
    arguments: Sequence[str]
    errors: Mapping[str, int]
    onwards: bool


def main() -> None:
    for line in sys.stdin:
        asked = Asked(**json.loads(line))
        work = partial(_ended, asked.arguments)
        code, met = tracer.forked(asked.k, asked.calls, work, asked.errors, onwards=asked.onwards)
        sys.stdout.write(json.dumps({"code": code, "met": met}) + "\n")
        sys.stdout.flush()


def _ended(arguments: Sequence[str]) -> None:
    """Ends this process with the code of the command; what it says on stderr stands beside its state folder."""
    mode, where, address, folder, *rest = arguments
    told = os.open(f"{where}.told", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(told, 2)
    code = 70
    try:
        code = mending.main(mode, Path(where), address, Path(folder), mutant=bool(rest))
    except LatdoctorError as error:
        code = error.exit_code
        with contextlib.suppress(OSError):  # it may be this very call that is made to fail
            os.write(2, f"{error}\n".encode(errors="replace"))
    except BaseException as error:  # noqa: BLE001 - the process ends here, and must not go back into the loop
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
