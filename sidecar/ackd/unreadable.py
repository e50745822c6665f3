"""What goes wrong with bytes that somebody else wrote: one list for whoever reads such bytes.

msgspec raises an error of its own for most of it, but not for all: text that is not UTF-8 is
reported as `UnicodeDecodeError` when the decoder first looks into it, and lists in lists without
end as `RecursionError`. A reader that knows only some of them fails where it should refuse.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Catch these around `decode` of msgspec."""
