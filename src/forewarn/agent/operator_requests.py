"""Requests of people to the running agent: files in its state directory, `undo` and `forget`.

Only its owner and root may write into the state directory, so that the directory is the
authentication; the status endpoint stays read-only. A request is taken away only after it has
been acted upon, and acting twice does no harm.
"""

from __future__ import annotations

import json
import os

from forewarn.agent.core.values import PersonAsked

VERBS = ("undo", "forget")
PREFIX, SUFFIX = "request-", ".json"
REQUESTS_MAX = 16  # taken at a time; the others wait
REQUEST_BYTES_MAX = 4096


class OperatorRequests:
    """The requests in one state directory."""

    def __init__(self, directory: str) -> None:
        """Use a directory that exists."""
        self._directory = directory
        self._paths: dict[PersonAsked, str] = {}

    def post(self, asked: PersonAsked, token: str) -> str:
        """Leave a request under a name nobody can guess; return its path, there until it is done.

        Raises:
            OSError: the directory cannot be written.
        """
        path = f"{self._directory}/{PREFIX}{token}{SUFFIX}"
        fresh = f"{path}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # follows no link
        with os.fdopen(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump({"verb": asked.verb, "name": asked.name}, file)
        os.replace(fresh, path)  # noqa: PTH105  `pathlib` is too heavy
        return path

    def pending(self) -> tuple[PersonAsked, ...]:
        """Return the pending requests; remove other files."""
        self._paths.clear()
        names = sorted(os.listdir(self._directory))  # noqa: PTH208  the same
        known = [name for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)]
        for name in known[:REQUESTS_MAX]:
            path = f"{self._directory}/{name}"
            asked = _read(path)
            if asked is None:
                _remove(path)
            else:
                self._paths[asked] = path
        return tuple(self._paths)

    def done(self, asked: PersonAsked) -> None:
        """Remove a request that was acted upon."""
        _remove(self._paths[asked])


def _read(path: str) -> PersonAsked | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  the same
            form = json.loads(file.read(REQUEST_BYTES_MAX))
    except (OSError, ValueError):
        return None
    verb, name = (form.get("verb"), form.get("name")) if isinstance(form, dict) else ("", "")
    return PersonAsked(verb, name) if verb in VERBS and isinstance(name, str) else None


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108  the same
    except OSError:
        return
