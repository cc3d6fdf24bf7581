"""Keeps a cluster in line with the service, until interrupted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from forewarn_base.errors import ForewarnError
from forewarn_base.exit_codes import OK
from forewarn_drivers.registry import KIND
from forewarn_server.cli.actions import load_action
from forewarn_server.cli.output import note

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping


class Followed(Protocol):
    """What is written into the cluster."""

    #: Longest time between two turns, in seconds.
    every_s: float

    def watch(self) -> threading.Event:
        """Return an event that is set by changes in the cluster."""

    def close(self) -> None:
        """Stop the watch."""


def create_for_action(
    action: str, driver: str, table: Mapping[str, object], *, cluster: str = ""
) -> Any:  # noqa: ANN401 - each command has its own type
    """Return the object that an action follows: it keeps a cluster in line with the service.

    `table` has the options of the driver, as its settings file has them.

    Raises:
        ExtensionMissing, ExtensionUnusable: the package is not installed, or cannot be loaded.
        ValidationFailed: an option is invalid.
    """
    create = load_action(action)
    return create(driver, {key: each for key, each in table.items() if key != KIND}, cluster)


class Follower:
    """Writes all differences in turns; prints each change, and each new problem once."""

    #: How a change is printed.
    shown = "{}"

    def __init__(self, followed: Followed) -> None:
        """Prepare to follow without a request."""
        self._followed = followed
        #: Problems of the last turn.
        self._said: set[str] = set()

    def once(self) -> tuple[list[str], list[str]]:
        """Write all differences once; return the names of what changed, and the problems.

        Raises:
            ForewarnError: the service or the API server does not answer.
        """
        raise NotImplementedError

    def turn(self) -> None:
        """Write all differences; a failure as a whole is a problem, too."""
        try:
            changed, problems = self.once()
        except ForewarnError as error:
            changed, problems = [], [str(error)]
        for each in changed:
            note(self.shown.format(each))
        for each in problems:
            if each not in self._said:
                note(each)
        self._said = set(problems)

    def follow(self, ended: threading.Event | None = None) -> int:
        """Write differences until interrupted, or until `ended` is set before a turn."""
        changed = self._followed.watch()
        sys.stderr.flush()
        while ended is None or not ended.is_set():
            changed.clear()
            self.turn()
            changed.wait(self._followed.every_s)
        self._followed.close()
        return OK
