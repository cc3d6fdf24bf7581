"""What can go wrong with a store, by who must act; nothing here knows an engine.

After any of these nothing was changed, unless the class says otherwise, and the store object can
be used again.
"""

from __future__ import annotations

import re

from forewarn.errors import CallerError, OurError, PeerError

#: What may be a password in an address, and what stands before it.
_SECRETS = (
    re.compile(r"(?<=:)(//)?\S*@"),
    re.compile(r"((?:pass|secret|key)\w*\s*=\s*)('[^']*'|[^&\s'\"]+)", re.IGNORECASE),
)


def redacted(text: str) -> str:
    """Return a text without what may be a user's name and password in an address."""
    without = _SECRETS[0].sub(r"\1…@", text)
    return _SECRETS[1].sub(r"\1…", without)


class StoreAddressInvalid(CallerError):
    """A store address that no engine understands."""

    code = "store-address-invalid"
    message = "{address!r} is not the address of a store."
    advice = "Give a file's path, `sqlite:///path`, `sqlite::memory:` or `postgresql://…`."


class StorePooled(PeerError):
    """A connection pooler changes the connection between transactions."""

    code = "store-pooled"
    status = 503
    message = "The store {place} is behind a connection pooler in transaction mode: {reason}."
    advice = (
        "Let it pool sessions (PgBouncer: pool_mode = session), or connect to the database itself."
    )


class StoreUnrestored(OurError):
    """A restore has not ended."""

    code = "store-unrestored"
    status = 503
    message = "The restore of the store {place} has not ended."
    advice = "Restore the backup again, into an empty place, with `forewarn store restore`."


class StoreInUse(CallerError):
    """Another process writes this SQLite store."""

    code = "store-in-use"
    status = 409
    message = "Another forewarn serves the store {place} (pid {pid})."
    advice = "Stop that process first, or give this one a store of its own."


class StoreMissing(CallerError):
    """There is no store where there must be one."""

    code = "store-missing"
    status = 409
    message = "There is no store at {place}."
    advice = (
        "Check its address (--config, or [store] url), or restore a backup. To begin with an empty"
        " store, set [store] must_exist to false, and remove a SQLite store's .lock file."
    )


class StoreTooNew(CallerError):
    """A newer version of Forewarn has migrated the store."""

    code = "store-too-new"
    status = 409
    message = "The store {place} has schema {found}; this version knows {known} at most."
    advice = "Run the version that wrote it, or restore the backup made before the upgrade."


class StoreSchemaOld(CallerError):
    """A shared store with fewer schema steps than this version has."""

    code = "store-schema-old"
    status = 409
    message = "The store {place} has {done} of the {known} schema steps of this version."
    advice = "Run `forewarn store upgrade` once; processes of the version before may run meanwhile."


class StoreDriverMissing(CallerError):
    """The library an engine needs is not installed."""

    code = "store-driver-missing"
    message = "The store {place} needs the Python package {package}."
    advice = "Install it from a clone of Forewarn with `pip install './forewarn[server]'`."


class StoreUnavailable(PeerError):
    """The database cannot be reached, is locked, or stopped in the middle of a transaction."""

    code = "store-unavailable"
    status = 503
    message = "The store {place} cannot be used: {reason}."
    advice = (
        "Nothing was changed. Check that the database can be reached, or that the file's directory"
        " exists and can be written, and try again."
    )


class StoreReplaced(StoreUnavailable):
    """The store's file was removed, replaced or cut off while it was open."""

    code = "store-replaced"
    message = "The store {place} is not the file that was opened: {reason}."
    advice = (
        "Nothing was changed. Put the file back, or stop the service and restore the last good"
        " backup; what was committed since is in the open file only."
    )


class StoreUncertain(StoreUnavailable):
    """The connection was lost during COMMIT: the change may have happened or not.

    The only error after which something may have changed. `Store.settle` finds out.
    """

    code = "store-uncertain"
    message = "The store {place} was lost during a commit: {reason}."
    advice = (
        "It is settled as soon as the database can be reached again; nothing is published before."
    )


class StoreFull(PeerError):
    """The disk is full, a quota is reached, or the database may only be read."""

    code = "store-full"
    status = 503
    message = "The store {place} cannot be written: {reason}."
    advice = "Nothing was changed; free space or make the database writable, then try again."


class FollowedTooLate(PeerError):
    """A follower has missed more than it can take up."""

    code = "followed-too-late"
    message = "History of the store {place} does not lead from the followed state to the newest."
    advice = "The state is loaded again; nothing need be done."


class StoreLost(PeerError):
    """Another process has become the writer of this store."""

    code = "store-lost"
    status = 503
    message = "Another process writes the store {place} now; this one is no longer its writer."
    advice = "Nothing was changed. Send the request to the process that holds the lease."


class StoreDamaged(OurError):
    """The database contradicts itself, or holds what no version of Forewarn has written."""

    code = "store-damaged"
    message = "The store {place} is damaged: {reason}."
    advice = "Stop the service, keep a copy of the store, and restore the last good backup."


class StoreContradiction(OurError):
    """A statement that the schema forbids: always a bug of the one who made the change."""

    code = "store-contradiction"
    message = "The store {place} refused a change: {reason}."
    advice = "Nothing was changed; report it with the service's log."
