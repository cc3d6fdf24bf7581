"""Store addresses: finds the engine for an address."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from forewarn.store.engine import Engine
from forewarn.store.errors import (
    StoreAddressInvalid,
    StoreDriverMissing,
    StoreMissing,
    redacted,
)
from forewarn.store.sqlite import SqliteEngine

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")
"""Pattern of an address's scheme, which is longer than a drive letter.

The pattern must not match the start of a file name.
"""
_USER = re.compile(r"(?<![^/@])[^/@:]*:[^/@]+@")
"""A password in an address. Messages show paths, so paths must not contain a password."""


def engine_of(address: str) -> Callable[..., Engine]:
    """Return the function that opens the store at an address.

    Raises:
        StoreAddressInvalid: no engine supports the address.
        StoreDriverMissing: the engine needs a package that is not installed.
    """
    scheme, colon, rest = address.partition(":")
    path = rest.removeprefix("//")
    if address in {":memory:", "sqlite::memory:"}:
        return _in_memory
    server = scheme in {"postgresql", "postgres"} and rest.startswith("//")
    if not server and _USER.search(address):
        raise StoreAddressInvalid(address=redacted(address))
    if scheme == "sqlite" and path and not path.startswith("file:"):
        path = path.replace("//", "/", 1) if path.startswith("//") else path  # sqlite:////path
        return partial(SqliteEngine, Path(path))
    if server:
        try:
            from forewarn.store.postgres import PostgresEngine  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise StoreDriverMissing(place="postgresql", package="psycopg") from error
        return partial(PostgresEngine, address)
    if not address or (colon and _SCHEME.fullmatch(scheme)):
        raise StoreAddressInvalid(address=redacted(address))
    return partial(SqliteEngine, Path(address))


def path_of(address: str) -> Path | None:
    """Return the path of a SQLite file; None for another address."""
    make = engine_of(address)
    path: Path | None = make.args[0] if getattr(make, "func", None) is SqliteEngine else None  # type: ignore[attr-defined]
    return path


def readable_engine(address: str) -> Engine:
    """Open a store for reading while another process may write it.

    Raises:
        StoreMissing: the store does not exist.
        StoreAddressInvalid, StoreDriverMissing, StoreUnavailable: the store cannot be opened.
    """
    make = engine_of(address)
    if getattr(make, "func", None) is SqliteEngine:
        return make(must_exist=True, read_only=True)
    return make(must_exist=True)


def _in_memory(*, must_exist: bool, replaces: bool = False) -> Engine:
    """Open a new database in memory."""
    del replaces
    if must_exist:
        raise StoreMissing(place="in memory")
    return SqliteEngine(None, must_exist=False)
