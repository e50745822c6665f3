"""The keys that sign lease tokens: from a file, or generated once and kept in the store (rule
R27).
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path

from ackd.core.lease_token import KEY_BYTES_MIN, LeaseKeys
from ackd.errors import ConfigError
from ackd.hidden import HIDDEN
from ackd.ports import Store

NAME = "lease-key"
KEY_BYTES = 32


def key_number(key: bytes) -> int:
    """Return a key's id inside tokens; two keys almost certainly differ in it."""
    return blake2b(key, digest_size=1, person=b"ackd-lease-key").digest()[0]


async def load_keys(store: Store, file: Path | None) -> LeaseKeys:
    """Read the keys; the second line of a file is the previous key, which still verifies.

    Raises ConfigError when the file is not usable, StoreError when the store is away.
    """
    if file is None:
        fresh = secrets.token_bytes(KEY_BYTES)
        keys = [await store.put_new(NAME, fresh) or fresh]
    else:
        keys = _from_file(file)
    numbered = {key_number(key): key for key in reversed(keys)}
    return LeaseKeys(numbered, key_number(keys[0]), shared=file is None)


async def agree(store: Store, keys: LeaseKeys) -> bool:
    """After a loss of the store's data: publish the key in use, unless another sidecar was first;
    then adopt that sidecar's key. True if another key signs from now on. Raises StoreError.
    """
    if not keys.shared:
        return False
    there = await store.put_new(NAME, keys.key)
    if there is None or there == keys.key:
        return False
    keys.adopt(key_number(there), there)
    return True


def _from_file(file: Path) -> list[bytes]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"lease_key_file: {error}") from error
    keys = [line.strip() for line in lines[:2] if line.strip()]
    for key in keys:
        HIDDEN.add(key)
    if not keys or any(len(key) < KEY_BYTES_MIN for key in keys):
        raise ConfigError(f"lease_key_file {file}: a key needs at least {KEY_BYTES_MIN} bytes")
    return keys
