"""Reports at once when the file of a store is removed or replaced, not at the next commit."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from forewarn_store.errors import StoreReplaced

if TYPE_CHECKING:
    from forewarn_store import Store

log = logging.getLogger("forewarn.store")

#: Interval at which the file is checked, in seconds. Cost: 3 system calls.
LOOK_S = 2.0


class StoreWatch:
    """Watches the file of a store on a thread, and logs each change once."""

    def __init__(self, store: Store, *, look_s: float = LOOK_S) -> None:
        self._store = store
        self._look_s = look_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store file", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        reported = ""
        while not self._stopping.wait(self._look_s):
            reported = self._look(reported)

    def _look(self, reported: str) -> str:
        try:
            self._store.check_file()
        except StoreReplaced as error:
            if str(error) != reported:
                log.error("%s %s", error, error.advice_text(), extra={"action": error.code})  # noqa: TRY400 - the sentence says it
            return str(error)
        if reported:
            log.info("the file of the store is in its place again", extra={"action": "store.back"})
        return ""
