"""Bodies that a producer has compressed, unpacked within a bound."""

from __future__ import annotations

import zlib

from ackd.errors import BrokerError


def unzipped(body: bytes, bytes_max: int, wbits: int = zlib.MAX_WBITS) -> bytes:
    """Unpack a whole body. `wbits`: which headers are known, as zlib has it. Raises BrokerError if
    it is broken, cut off, or longer than `bytes_max`.
    """
    unpacker = zlib.decompressobj(wbits)
    try:
        made = unpacker.decompress(body, bytes_max)
    except zlib.error as error:
        raise BrokerError(f"a body can't be unpacked: {error}", code="MESSAGE_CORRUPTED") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise BrokerError("a body is too large or cut off", code="MESSAGE_BODY_TOO_LARGE")
    return made
