"""Addresses of stores: where a store is, and how a process opens it."""

from __future__ import annotations

import re
from pathlib import Path

from forewarn_base.values import value
from forewarn_store.engine import Engine
from forewarn_store.errors import (
    StoreAddressInvalid,
    StoreDriverMissing,
    StoreMissing,
    redacted,
)
from forewarn_store.sqlite import SqliteEngine

#: Pattern of an address's scheme, which is longer than a drive letter.
#:
#: The pattern must not match the start of a file name.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")
#: A password in an address. Messages show paths, so paths must not contain a password.
_USER = re.compile(r"(?<![^/@])[^/@:]*:[^/@]+@")


@value
class StoreLocation:
    """Where a store is: in a file, on a server, or in the memory of this process."""

    #: Path of a SQLite file; None: no file.
    path: Path | None = None
    #: Address of a PostgreSQL database; may contain a password. Empty: no server.
    server: str = ""

    @property
    def in_memory(self) -> bool:
        """Whether only this object's engine sees the store."""
        return self.path is None and not self.server

    def open(self, *, must_exist: bool, replaces: bool = False) -> Engine:
        """Open the store as its writer.

        Args:
            must_exist: whether the database must exist already.
            replaces: whether a new database may replace a missing database.

        Raises:
            StoreMissing: the store does not exist, although it must.
            StoreInUse, StoreUnavailable, StoreFull, StoreDamaged: the store cannot be opened.
        """
        if self.server:
            return self._open_server()
        if self.in_memory and must_exist:
            raise StoreMissing(place="in memory")
        return SqliteEngine(self.path, must_exist=must_exist, replaces=replaces)

    def open_for_reading(self) -> Engine:
        """Open an existing store for reading, while another process may write it.

        Raises:
            StoreMissing, StoreUnavailable: the store cannot be opened.
        """
        if self.path is not None:
            return SqliteEngine(self.path, must_exist=True, read_only=True)
        return self.open(must_exist=True)

    def open_beside(self) -> Engine:
        """Open an existing store for records of its own, while another process may write it.

        Raises:
            StoreMissing, StoreUnavailable, StoreFull: the store cannot be opened.
        """
        if self.path is not None:
            return SqliteEngine(self.path, must_exist=True, beside=True)
        return self.open(must_exist=True)

    def _open_server(self) -> Engine:
        try:
            from forewarn_store.postgres import PostgresEngine  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise StoreDriverMissing(place="postgresql", package="psycopg") from error
        return PostgresEngine(self.server)


def location_of(address: str) -> StoreLocation:
    """Return the location that an address names.

    Raises:
        StoreAddressInvalid: no engine supports the address.
    """
    scheme, colon, rest = address.partition(":")
    path = rest.removeprefix("//")
    if address in {":memory:", "sqlite::memory:"}:
        return StoreLocation()
    if scheme in {"postgresql", "postgres"} and rest.startswith("//"):
        return StoreLocation(server=address)
    if _USER.search(address):
        raise StoreAddressInvalid(address=redacted(address))
    if scheme == "sqlite" and path and not path.startswith("file:"):
        path = path.replace("//", "/", 1) if path.startswith("//") else path  # sqlite:////path
        return StoreLocation(Path(path))
    if not address or (colon and _SCHEME.fullmatch(scheme)):
        raise StoreAddressInvalid(address=redacted(address))
    return StoreLocation(Path(address))
