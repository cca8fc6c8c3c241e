"""What a disturbance is: a context that is entered when it begins and left when it ends, on the event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from latdoctor.lab.server.parts import Parts

# Gets the server and a strength, in the disturbance's own unit. Entering it raises UsageError or OperationError where
# this server cannot have it.
Disturbance: TypeAlias = Callable[[Parts, float], AbstractAsyncContextManager[None]]
