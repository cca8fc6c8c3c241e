"""What msgspec raises for bytes that are not what they should be, so that all who read such bytes catch alike."""

from __future__ import annotations

import msgspec

# A text that is not UTF-8 is no error of msgspec's own, and neither is what is nested too deep for the stack.
UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
