"""Checks a store's ended work and history in the background, after the service has started.

A start reads only the live state. Damage of the past does not stop the service: it is logged, and
`/v1/health` shows it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError
from forewarn_store import Store
from forewarn_store.errors import StoreDamaged
from forewarn_store.migrations import LIVE_TABLES, every_table
from forewarn_store.reading import PastProgress

log = logging.getLogger("forewarn.store")

#: Share of a processor that the check may use.
SHARE = 0.2
#: Percentage of the progress that the pages count.
PAGES_PERCENT = 30
#: Time limit for a running step once the service stops, in seconds.
STOP_S_MAX = 1.0


class PastCheck:
    """A check on a thread, until it has ended or is stopped."""

    def __init__(self, store: Store, clock: Clock, *, share: float = SHARE) -> None:
        """Start to check; `share` is the permitted share of a processor."""
        self._store = store
        self._clock = clock
        self._share = share
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="past check", daemon=True)
        store.past_progress = PastProgress()
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; the next start begins again."""
        self._stopping.set()
        self._thread.join(STOP_S_MAX)

    def _run(self) -> None:
        began_ms, damage = self._clock.elapsed_ms(), ""
        try:
            step_ms = began_ms
            for percent in self._percents():
                self._store.past_progress = PastProgress(percent)
                worked_s = (self._clock.elapsed_ms() - step_ms) / 1000
                if self._stopping.wait(worked_s * (1 / self._share - 1)):  # others work
                    return
                step_ms = self._clock.elapsed_ms()
        except StoreDamaged as error:
            damage = str(error)
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})  # noqa: TRY400 - the sentence says it
        except ForewarnError as error:
            text = "the check of ended work and history ended early: %s"
            log.warning(text, error, extra={"action": "past.unchecked"})
            return
        except Exception:
            log.exception("the check of ended work and history failed because of a bug")
            return
        self._store.past_progress = PastProgress(100, damage)
        if not damage:
            took_s = (self._clock.elapsed_ms() - began_ms) / 1000
            text = "checked ended work and history in %.0f s"
            log.info(text, took_s, extra={"action": "past.checked"})

    def _percents(self) -> Iterator[int]:
        """Check the pages, then the contents; yield the percentage after each step."""
        tables = [table for table in every_table() if table not in LIVE_TABLES]
        for number, table in enumerate(tables, start=1):
            self._store.check_table(table)
            yield PAGES_PERCENT * number // len(tables)
        for share in self._store.checked_past():
            yield PAGES_PERCENT + int((100 - PAGES_PERCENT) * share)
