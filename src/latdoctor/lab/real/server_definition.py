"""Definitions of real servers in YAML: how one starts, what it serves, and how a person installs it.

    name: triton
    title: Triton Inference Server
    start: [start-triton, '{port}']
    environment: {REPO: '{folder}/repository'}
    ready: http://127.0.0.1:{port}/v2/health/ready
    metrics: [http://127.0.0.1:{port2}/metrics]
    log: log/triton-{port}.log
    engine: triton_python_backend_stub

Braces name what is known when it starts: `port`, and `port1` and so on after it, `folder` (a folder of the run),
`root` (where the servers are installed), `replicas` (addresses of the servers behind a router, one argument each),
`python` (latdoctor's interpreter, as a program).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.load.request_template import RequestTemplate
from latdoctor.strict_yaml import load

FOLDER = Path(__file__).parent / "servers"
ROOT_VARIABLE = "LATDOCTOR_REAL_SERVERS"
MOST_PORTS = 8


class ReplicaGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """The servers behind a router."""

    server: str
    count: Annotated[int, Meta(ge=1, le=8)] = 2


class ServerDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of server.

    `start[0]` is a program in the folder of the installed servers, or latdoctor's interpreter. `files` is a folder of
    templates that is copied into the run's folder. `engine` is a part of the command line of the process that computes;
    empty: the server itself. `package` finds the version among the installed distributions. `first_answers`: requests
    before the load, which wait for what a server loads with its first request.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    title: str
    start: Annotated[tuple[str, ...], Meta(min_length=1)]
    ready: str
    metrics: tuple[str, ...]
    log: str
    install: str
    environment: dict[str, str] = {}
    package: str = ""
    request: RequestTemplate | None = None
    files: str = ""
    engine: str = ""
    replicas: ReplicaGroup | None = None
    ports: Annotated[int, Meta(ge=1, le=MOST_PORTS)] = 1
    ready_within: Annotated[float, Meta(gt=0, le=600)] = 60.0
    first_answers: Annotated[int, Meta(ge=0, le=50)] = 3

    def missing(self, root: Path | None) -> str:
        """Why it cannot be started; empty if it can."""
        if root is None:
            return f"no folder of servers is given: set {ROOT_VARIABLE} or use --servers"
        program = self.program(root)
        if not os.access(program, os.X_OK):
            return f"not installed: there is no program {program.name} in {root}. Install it: {self.install}"
        return find_server(self.replicas.server).missing(root) if self.replicas else ""

    def program(self, root: Path) -> Path:
        """The program that starts it."""
        return root / self.start[0].format(python=sys.executable)

    def version(self, root: Path) -> str:
        """The version of the installed package; empty where it is not found."""
        pattern = f"*/lib/python3*/site-packages/{self.package}-*.dist-info"
        found = sorted(root.glob(pattern)) if self.package else []
        return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""


def installed_in(option: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of installed servers: `option`, or the one in the environment; None without any.

    Raises UsageError where it is no folder.
    """
    named = option or (Path(environment[ROOT_VARIABLE]) if environment.get(ROOT_VARIABLE) else None)
    if named is not None and not named.is_dir():
        raise UsageError("there is no such folder of servers", where=str(named), next_step="--servers DIR")
    return named.resolve() if named is not None else None


def server_names() -> tuple[str, ...]:
    """The servers that are defined."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find_server(name: str) -> ServerDefinition:
    """The definition called `name`. Raises UsageError, DefinitionError."""
    path = FOLDER / f"{name}.yaml"
    if "/" in name or not path.is_file():
        raise UsageError(f"no real server is called {name!r}", next_step=f"one of {', '.join(server_names())}")
    return read_definition(path)


def read_definition(path: Path) -> ServerDefinition:
    """Raises DefinitionError for a definition that is not valid."""
    node = load(path)
    try:
        defined = msgspec.convert(node.plain(), ServerDefinition, strict=False)
    except msgspec.ValidationError as error:
        raise DefinitionError([Problem(node.where, str(error))]) from error
    if problems := tuple(_problems(defined, path)):
        raise DefinitionError([Problem(node.where, problem) for problem in problems])
    return defined


def _problems(defined: ServerDefinition, path: Path) -> Iterator[str]:
    if defined.name != path.stem:
        yield f"the name {defined.name!r} differs from the file's name"
    known = dict.fromkeys(("port", "folder", "root", "replicas", "python"), "")
    known |= {f"port{number}": "" for number in range(1, defined.ports)}
    texts = (*defined.start, *defined.environment.values(), *defined.metrics, defined.ready, defined.log)
    for text in texts:
        try:
            text.format(**known)
        except (KeyError, IndexError, ValueError) as error:
            yield f"{text!r} has an unknown place: {error}"
