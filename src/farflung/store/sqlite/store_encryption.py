"""The encryption of a hub's store: its keys and resources, and following a key file that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from farflung.lib.envelopes import KeyRing
from farflung.lib.key_file import Identity, KeyFile, KeyFileError
from farflung.store.base import StoreError
from farflung.store.encryption import Encryption, ResourcePatterns
from farflung.store.sqlite.files import needed_keys
from farflung.store.sqlite.store import SqliteStore

FOLLOW: Final = 1.0  #: seconds between two looks at the key file
RETRY_SECONDS: Final = 10.0  #: seconds before a retry after a failure

log = logging.getLogger(__name__)


class StoreEncryption:
    """The keys of a store, which follow their file while the hub runs."""

    def __init__(self, keys: KeyFile, resources: Sequence[str] = ()) -> None:
        self._keys = keys
        self._resources = resources
        self._seen: Identity | None = None

    def ensure(self, store: Path) -> Encryption:
        """Read the keys, or create the file if no value of the store needs a key yet.  Blocks.  Raises KeyFileError or
        Unusable."""
        if self._keys.identity() is None:
            if needed := needed_keys(store):
                raise KeyFileError(
                    f"{store} has values that are encrypted with the key {min(needed)}, and {self._keys.path} is "
                    "missing: restore it, or name it with --encryption-key-file"
                )
            self._keys.create()
        self._seen = self._keys.identity()
        return self._read()

    def _read(self) -> Encryption:
        ring = KeyRing([one.key for one in self._keys.read()])
        return Encryption(ring, ResourcePatterns(self._resources))

    async def follow(self, store: SqliteStore) -> None:
        """Forever: rewrite values that are not encrypted with the first key, and use keys that are added."""
        pending = True
        while True:
            pause = FOLLOW
            try:
                if (now := self._keys.identity()) not in (self._seen, None):
                    encryption = await asyncio.to_thread(self._read)
                    await store.change_encryption(encryption)
                    log.info("the key %s of %s encrypts from now on", encryption.first_id, self._keys.path)
                    self._seen, pending = now, True
                if pending and await store.rewrite_values():
                    log.info("all values are encrypted with the first key of %s", self._keys.path)
                pending = False
            except (KeyFileError, StoreError) as error:
                log.error("values are not encrypted again: %s", error)
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)
