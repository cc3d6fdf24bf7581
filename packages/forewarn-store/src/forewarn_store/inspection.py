"""Inspects a store before its opening, without creating, changing or claiming the store."""

from __future__ import annotations

import os
from pathlib import Path

from forewarn_base.values import value
from forewarn_store import RESTORING, Store
from forewarn_store.addresses import location_of
from forewarn_store.engine import Engine
from forewarn_store.errors import (
    StoreMissing,
    StoreSchemaOld,
    StoreUnavailable,
    StoreUnrestored,
)
from forewarn_store.lease import Lease
from forewarn_store.migrations import check_steps, every_step, steps_done
from forewarn_store.sqlite import SqliteEngine
from forewarn_store.sqlite_file import remembers_store, sentence


@value
class StoreFacts:
    """The current facts about a usable store."""

    #: Whether `open_store` would create the store.
    missing: bool = False
    #: Whether `open_store` would upgrade the store's schema.
    outdated: bool = False
    #: The lease of a shared store; a running holder renews the lease.
    lease: Lease | None = None


def inspect_store(address: str, *, must_exist: bool) -> StoreFacts:
    """Return facts about the store at an address. Cost: opens the store and loads its state.

    Raises: the errors of `open_store` and `Store.load`.
    """
    location = location_of(address)
    path = location.path
    if path and not (path.exists() and path.stat().st_size):
        if must_exist or remembers_store(path):
            raise StoreMissing(place=str(path))
        _check_directory(path)
        return StoreFacts(missing=True)
    engine = location.open(must_exist=must_exist)
    try:
        return _inspect(engine, must_exist=must_exist)
    finally:
        engine.close()


def _inspect(engine: Engine, *, must_exist: bool) -> StoreFacts:
    done = steps_done(engine)
    if not done:
        if must_exist or engine.expects_store:
            raise StoreMissing(place=engine.place)
        return StoreFacts(missing=True)
    check_steps(engine.place, done, every_step(), beside_newer=True)
    if len(done) < len(every_step()):
        if engine.is_shared:
            raise StoreSchemaOld(place=engine.place, done=len(done), known=len(every_step()))
        return StoreFacts(outdated=True)
    store = Store(engine)
    store.look()
    if store.epoch == RESTORING:
        raise StoreUnrestored(place=store.place)
    return StoreFacts(lease=None if isinstance(engine, SqliteEngine) else store.lease())


def _check_directory(path: Path) -> None:
    directory = path.absolute().parent
    if not directory.is_dir():
        reason = sentence(FileNotFoundError(2, "No such file or directory", str(path)))
    elif not os.access(directory, os.W_OK | os.X_OK):
        reason = f"Permission denied: {path}.lock"
    else:
        return
    raise StoreUnavailable(place=str(path), reason=reason)
