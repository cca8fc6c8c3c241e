"""Threads that ask a server until they are stopped."""

from __future__ import annotations

import threading
from typing import Self

from tests.lab.server.fakes import PATIENCE


class ClientThreads:
    """`count` threads in `talk`, which ends once `stop` is set."""

    def __init__(self, count: int) -> None:
        self.stop = threading.Event()
        self._threads = [threading.Thread(target=self.talk, args=(number,)) for number in range(count)]

    def talk(self, number: int) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
