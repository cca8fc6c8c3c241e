"""What decoding JSON from outside raises: apart from `errors`, which --help imports and msgspec would slow down."""

from __future__ import annotations

import msgspec

# A text that is not UTF-8 is no error of msgspec's own, and neither is what is nested too deep for the stack.
UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
