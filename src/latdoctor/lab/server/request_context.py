"""What passes through the server: a request's work as the scheduler sees it, batches, and the timing of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
