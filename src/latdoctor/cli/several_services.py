"""Several inference services on one machine: each is diagnosed by itself, so that none speaks for another."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from latdoctor.cli.console import notice
from latdoctor.cli.options import SourceOptions
from latdoctor.errors import UsageError

if TYPE_CHECKING:
    from latdoctor.cli.resolve_request import ResolvedRequest
    from latdoctor.collectors.prometheus.local_services import LocalService

_WORST = (1, 3, 4, 0)  # exit codes, the one that is reported for several diagnoses first


class SeveralServicesError(UsageError):
    """No source was named, and this machine has several `services`."""

    def __init__(self, services: Sequence[LocalService]) -> None:
        listed = [f"{one.title}: {_options(one)}" for one in services]
        super().__init__(
            f"{len(services)} inference services are on this machine, and none was named",
            next_step=f"name one, such as {_options(services[0])}",
            listed=listed,
        )
        self.services = tuple(services)


def _options(service: LocalService) -> str:
    return " ".join(f"--server {shlex.quote(url)}" for url in service.urls)


def check_one_service(resolved: ResolvedRequest) -> None:
    """Raises SeveralServicesError where no source was named and several services were found."""
    if len(resolved.services) > 1:
        raise SeveralServicesError(resolved.services)


def each_service(error: SeveralServicesError, sources: SourceOptions, run: Callable[[SourceOptions], int]) -> int:
    """Run the diagnosis of each service in turn. Returns the exit code of the worst."""
    notice(f"{len(error.services)} inference services are on this machine; each is diagnosed by itself")
    codes = []
    for service in error.services:
        notice(f"{service.title}: diagnose {_options(service)}")
        codes.append(run(replace(sources, server=service.urls)))
    return next(code for code in (*_WORST, *codes) if code in codes)
