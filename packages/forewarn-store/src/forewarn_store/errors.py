"""Errors of a store, independent of its engine.

An error means that nothing was changed, unless its class says otherwise. The store object remains
usable.
"""

from __future__ import annotations

import re

from forewarn_base.errors import CallerError, OurError, PeerError

_WORD = re.compile(r"\S+")
#: A name of a secret and its value. No repetition is tried from a second place.
_SECRET = re.compile(
    r"(?<!\w)(?=\w*?(?:pass|secret|key))(\w++\s*+=\s*+)('[^']*'|[^&\s'\"]+)", re.IGNORECASE
)


def redacted(text: str) -> str:
    """Return a text without the user names and passwords of addresses."""
    return _SECRET.sub(r"\1…", _WORD.sub(_without_user, text))


def _without_user(word: re.Match[str]) -> str:
    before, colon, rest = word[0].partition(":")
    user, sign, place = rest.rpartition("@")
    if not sign:
        return word[0]
    return f"{before}{colon}{'//' if user.startswith('//') else ''}…@{place}"


class StoreAddressInvalid(CallerError):
    """No engine supports the store address."""

    code = "store-address-invalid"
    message = "{address!r} is not the address of a store."
    advice = "Use the path of a file, `sqlite:///path`, `sqlite::memory:` or `postgresql://…`."


class StorePooled(PeerError):
    """A connection pooler changes the connection between transactions."""

    code = "store-pooled"
    status = 503
    message = "The store {place} is behind a connection pooler in transaction mode: {reason}."
    advice = (
        "Set the pooler to session mode (PgBouncer: pool_mode = session), or connect directly to "
        "the database."
    )


class StoreUnrestored(OurError):
    """The restore of a store is unfinished."""

    code = "store-unrestored"
    status = 503
    message = "The restore of the store {place} is unfinished."
    advice = (
        "Restore the backup again, to a new file or an empty database, with "
        "`forewarn store restore FILE`. Name the service's settings (--config) unless they are in "
        "the default file."
    )


class StoreInUse(CallerError):
    """Another process writes the SQLite store."""

    code = "store-in-use"
    status = 409
    message = "Another forewarn process uses the store {place} (pid {pid})."
    advice = "Stop the other process first, or use another store."


class StoreMissing(CallerError):
    """A required store does not exist."""

    code = "store-missing"
    status = 409
    message = "There is no store at {place}."
    advice = (
        "Name the service's settings (--config), correct [store] url, or restore a backup. To "
        "begin with an empty store, set [store] must_exist to false, and remove a SQLite store's "
        ".lock file."
    )


class StoreTooNew(CallerError):
    """A newer version of Forewarn has migrated the store."""

    code = "store-too-new"
    status = 409
    message = "The store {place} has schema {found}; this version supports at most {known}."
    advice = "Run the version that wrote the store, or restore a backup from before the upgrade."


class StoreSchemaOld(CallerError):
    """A shared store lacks schema steps of this version."""

    code = "store-schema-old"
    status = 409
    message = "The store {place} has {done} of the {known} schema steps of this version."
    advice = (
        "Run `forewarn upgrade check`, which shows whether other processes may run during the "
        "upgrade."
    )


class StoreSchemaDiffers(CallerError):
    """Another build of Forewarn has created the store, perhaps one between two releases."""

    code = "store-schema-differs"
    status = 409
    message = "The store {place} has another schema step {name} than this version."
    advice = (
        "Run the version that created the store, or restore a backup of a released version. A "
        "store of a development version can only be used by that version."
    )


class StoreDriverMissing(CallerError):
    """The library of the store's engine is not installed."""

    code = "store-driver-missing"
    message = "The store {place} needs the Python package {package}."
    advice = "Install it from a clone of Forewarn with `pip install './forewarn[server]'`."


class StoreUnavailable(PeerError):
    """The database is unreachable or locked, or stopped during a transaction."""

    code = "store-unavailable"
    status = 503
    message = "The store {place} cannot be used: {reason}."
    advice = (
        "Nothing was changed. Check that the service's settings are named (--config), and that the "
        "database is reachable, or the file's directory exists and is writable; then try again."
    )


class StoreReplaced(StoreUnavailable):
    """The store's file was removed, replaced or truncated while it was open."""

    code = "store-replaced"
    message = "The store {place} is not the file that was opened: {reason}."
    advice = (
        "Nothing was changed. Put the file back, or stop the service and restore the last good"
        " backup; later commits are only in the open file."
    )


class StoreRemoved(StoreReplaced):
    """The store's file was removed or renamed while it was open."""

    code = "store-removed"
    message = "The file {path} of the store was removed while the service uses it."
    advice = (
        "Nothing is lost while the service runs. If the file was moved, move it back. If it was"
        " deleted, copy it and its log (`-wal`) from /proc/{pid}/fd before you stop the service;"
        " else restore the last backup with `forewarn store restore FILE` and the service's"
        " --config."
    )


class StoreUncertain(StoreUnavailable):
    """The connection was lost during a commit, so its result is unknown.

    This is the only error after which the commit may have taken effect. `Store.settle` finds out.
    """

    code = "store-uncertain"
    message = "The store {place} was lost during a commit: {reason}."
    advice = (
        "The service determines the result once the database is reachable again, and publishes "
        "nothing until then."
    )


class StoreFull(PeerError):
    """The store cannot be written: the disk is full, or the database is read-only."""

    code = "store-full"
    status = 503
    message = "The store {place} cannot be written: {reason}."
    advice = "Nothing was changed; free space or make the database writable, then try again."


class StoreWentBack(PeerError):
    """The store has lost commits, or contains other commits under their numbers."""

    code = "store-went-back"
    status = 503
    message = "The store {place} has gone back: it lacks commit {commit}, known by {witness}."
    advice = (
        "Nothing was changed. Stop every service. If a newer copy of the database exists, put it "
        "in place; otherwise run `forewarn store restore --in-place` with the service's --config, "
        "so that VMs see no number twice and no work begins twice."
    )


class FollowedTooLate(PeerError):
    """A follower has missed too many commits."""

    code = "followed-too-late"
    message = "The changes of the store {place} since the last read are too many to follow."
    advice = "No action is needed. The follower loads the state again."


class StoreLost(PeerError):
    """Another process now writes the store."""

    code = "store-lost"
    status = 503
    message = "Another process is now the writer of the store {place}."
    advice = "Nothing was changed. Send the request to the process with the lease."


class StoreDamaged(OurError):
    """The database contradicts itself, or contains data that Forewarn never writes."""

    code = "store-damaged"
    message = "The store {place} is damaged: {reason}."
    advice = "Stop the service, keep a copy of the store, and restore the last good backup."


class StoreContradiction(OurError):
    """A change violates the schema, which is always a bug."""

    code = "store-contradiction"
    message = "The store {place} refused a change: {reason}."
    advice = "Nothing was changed. Report this bug with the service's log."
