"""The store of one machine: an SQLite file, the present in memory.

`store` decides in the event loop: it numbers the writes, checks them against memory and the writes under way, and
publishes what is durable.  `writer` is the one thread that writes; it commits whatever has gathered while it
committed the last time.  `history` reads what memory no longer holds, `checkpoint` moves the write-ahead log into the
file, and `files` opens, checks, locks and loads; `rows` says what stands in the tables.
"""

from farflung.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
