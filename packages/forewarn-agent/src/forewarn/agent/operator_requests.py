"""Operators' requests to the running agent: `undo` and `forget`, as files in the state directory.

The permissions of the state directory authenticate requests: only its owner and root can write. The
agent deletes a request after processing; processing a request twice is harmless.
"""

from __future__ import annotations

import json
import os

from forewarn.agent.core.values import PersonAsked

VERBS = ("undo", "forget")
PREFIX, SUFFIX = "request-", ".json"
REQUESTS_MAX = 16  # most requests read at a time
REQUEST_BYTES_MAX = 4096


class OperatorRequests:
    """The requests in one state directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._paths: dict[PersonAsked, str] = {}

    def post(self, request: PersonAsked, token: str) -> str:
        """Write a request to a file with an unguessable name; return the file's path.

        Raises:
            OSError: the directory is not writable.
        """
        path = f"{self._directory}/{PREFIX}{token}{SUFFIX}"
        fresh = f"{path}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # follows no symbolic link
        with os.fdopen(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump({"verb": request.verb, "name": request.name}, file)
        os.replace(fresh, path)  # noqa: PTH105  `pathlib` is too heavy
        return path

    def pending(self) -> tuple[PersonAsked, ...]:
        """Return the pending requests; delete invalid files."""
        self._paths.clear()
        names = sorted(os.listdir(self._directory))  # noqa: PTH208  the same
        known = [name for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)]
        for name in known[:REQUESTS_MAX]:
            path = f"{self._directory}/{name}"
            request = _read(path)
            if request is None:
                _remove(path)
            else:
                self._paths[request] = path
        return tuple(self._paths)

    def done(self, request: PersonAsked) -> None:
        """Delete a processed request."""
        _remove(self._paths[request])


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
