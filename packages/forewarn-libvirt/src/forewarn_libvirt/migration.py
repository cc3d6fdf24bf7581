"""One live migration of a guest: start, progress, and the policy for slow migrations.

`guests.py` chooses the destination and writes the marks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError
from forewarn_libvirt.config import Fallback, LibvirtConfig
from forewarn_libvirt.connection import DomainGone, HypervisorFailed, failing
from forewarn_libvirt.domain import Domain

#: Interval between calls to a hypervisor during a migration, in seconds.
LOOK_EVERY_S = 0.2
#: Time limit for undoing a migration, in seconds.
ABORT_S = 20.0
#: Extra time after the limit until a guest is ready for post-copy, in seconds, because both hosts
#: may still be preparing.
POSTCOPY_S = 60.0


class MigrationTimedOut(PeerError):
    """A live migration exceeded its time limit."""

    code = "migration-timed-out"
    message = "The live migration of {vm} to {host} was aborted after {seconds} s."
    advice = "Retry when the VM is less busy, or set migration_fallback."


class Stopped(Exception):
    """The operation was aborted."""


class Migration:
    """A running guest during its migration to another host."""

    def __init__(
        self,
        domain: Domain,
        to: str,
        config: LibvirtConfig,
        *,
        stopped: threading.Event,
        say: Callable[[str, float], None],
    ) -> None:
        """`say` receives the current activity and its completed share, 0 to 1."""
        self._domain = domain
        self._to = to
        self._config = config
        self._stopped = stopped
        self._say = say
        self._clock = SystemClock()
        self._ended = threading.Event()
        self._failed: list[Exception] = []

    def carry_out(self) -> None:
        """Migrate, or wait for a migration in progress.

        Raises:
            ForewarnError: the migration failed.
            Stopped: the task was aborted.
        """
        domain, to, config = self._domain, self._to, self._config
        self._say(f"migrating {domain.name} to {to}", 0)
        with failing(domain.host):
            if domain.migrating:  # since before a crash of the driver
                with contextlib.suppress(DomainGone):
                    while domain.active and domain.migrating:
                        self._watch_or_abort()
                return
        threading.Thread(target=self._act, name=f"migration of {domain.name}", daemon=True).start()
        ends_ms = self._clock.now_ms() + config.migration_timeout_s * 1000
        late = helped = False
        while not self._ended.wait(LOOK_EVERY_S):
            try:
                self._watch()
            except Stopped:
                self._end()
                raise
            late = self._clock.now_ms() > ends_ms
            if late and not helped:
                helped = self._hurry(ends_ms)
        if self._failed and late and config.migration_fallback is Fallback.GIVE_UP:
            seconds = config.migration_timeout_s
            raise MigrationTimedOut(vm=domain.name, host=to, seconds=seconds)
        if self._failed:
            raise self._failed[0]

    def _act(self) -> None:
        """Migrate on a separate thread; `carry_out` raises the errors of this thread."""
        domain, config = self._domain, self._config
        try:
            with failing(domain.host):
                domain.migrate(config.migration_uri(self._to), config)
        except Exception as error:  # noqa: BLE001 - raised by `carry_out`
            self._failed.append(error)
        finally:
            self._ended.set()

    def _watch(self) -> None:
        """Report the progress of the migration.

        Raises:
            Stopped: the task was aborted.
        """
        domain = self._domain
        if self._stopped.wait(LOOK_EVERY_S):
            raise Stopped
        with failing(domain.host):
            self._say(f"migrating {domain.name} to {self._to}", domain.share())

    def _watch_or_abort(self) -> None:
        try:
            self._watch()
        except Stopped:
            self._domain.abort_migration()
            raise

    def _end(self) -> None:
        """Abort the migration, and wait until both hosts have ended it.

        The driver repeats the abort, because libvirt refuses an abort before the copy of memory
        begins.
        """
        ends_ms = self._clock.now_ms() + ABORT_S * 1000
        while not self._ended.is_set() and self._clock.now_ms() < ends_ms:
            with failing(self._domain.host):
                self._domain.abort_migration()
            self._ended.wait(LOOK_EVERY_S)

    def _hurry(self, since_ms: int) -> bool:
        """Apply the policy for slow migrations; return False to apply the policy again later."""
        domain, fallback = self._domain, self._config.migration_fallback
        with failing(domain.host):
            if fallback is Fallback.SUSPEND:
                domain.suspend()
                return True
            if fallback is Fallback.GIVE_UP:
                domain.abort_migration()
                return False
        try:
            with failing(domain.host):
                domain.end_precopy()
        except HypervisorFailed:  # libvirt refuses this before the copy of memory begins
            if self._clock.now_ms() - since_ms < POSTCOPY_S * 1000:
                return False
            self._end()
            raise
        return True
