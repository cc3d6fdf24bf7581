"""Who carries each operation out, how far they are, and when to ask them again.

No deadline and no approval is looked at here; what drivers say is reported, not decided on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.stimulus import DriverAborted, DriverBegun, DriverDone, DriverFailed
from forewarn.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forewarn.control.plane import ControlPlane
    from forewarn.core.stimulus import Stimulus
    from forewarn.core.topology import Host
    from forewarn.drivers import Driver

log = logging.getLogger("forewarn.control")

#: Times a driver is told that an operation ended without it; after that people must look.
ABORT_TRIES = 8
#: How long until a driver that could not be told is told again, in milliseconds; doubled each
#: time, so that all tries together take two minutes: a management board's restart.
ABORT_AGAIN_MS = 1000


class DriverUnknown(CallerError):
    """A driver that is not built in."""

    code = "driver-unknown"
    status = 422
    message = "There is no driver {name}."
    advice = "Use one of: {known}."


class DriverDispatch:
    """Talks to the drivers of one control plane; on the loop's thread only."""

    def __init__(
        self,
        plane: ControlPlane,
        drivers: Mapping[str, Driver],
        *,
        default: str,
        report: Callable[[Stimulus, str], None],
    ) -> None:
        """Ask nobody yet.

        Args:
            plane: whose operations are carried out.
            drivers: by name.
            default: for hosts that name none.
            report: is given what a driver says, and the driver's name.

        Raises:
            DriverUnknown: the default is none of them.
        """
        self._plane = plane
        self._drivers = drivers
        self._default = default
        self._report = report
        #: Operation -> the attempt that was begun, and when to ask its driver again, ms since the
        #: epoch UTC.
        self._asks: dict[int, tuple[int, int]] = {}
        #: Operation -> when to tell its driver again that it has ended, and times it was told.
        self._aborts: dict[int, tuple[int, int]] = {}
        #: Operation -> whom or what its driver says it waits for.
        self._waits: dict[int, str] = {}
        self._named(default)

    @property
    def next_ms(self) -> int | None:
        """When a driver is to be asked or told, ms since the epoch UTC; None if none is."""
        asks = (at_ms for _, at_ms in self._asks.values())
        aborts = (at_ms for at_ms, _ in self._aborts.values())
        return min((*asks, *aborts), default=None)

    def waits(self, number: int) -> str:
        """Whom or what an operation's driver says it waits for; empty while the driver works."""
        return self._waits.get(number, "")

    def check(self, hosts: Iterable[Host]) -> None:
        """Refuse hosts that name a driver nobody has.

        Raises:
            DriverUnknown: one does.
        """
        for host in hosts:
            self._named(host.driver or self._default)

    def resume(self, now_ms: int) -> None:
        """Ask after everything that was begun before the service started."""
        for operation in self._plane.state.operations.values():
            if operation.state is OperationState.RUNNING and operation.begun_ms:
                self._asks[operation.number] = (operation.attempt, now_ms)

    def put_by(self, step_ms: int) -> None:
        """Ask and tell drivers when that was due, where the service's clock was put by so much."""
        for number, (attempt, at_ms) in self._asks.items():
            self._asks[number] = (attempt, at_ms + step_ms)
        for number, (at_ms, tries) in self._aborts.items():
            self._aborts[number] = (at_ms + step_ms, tries)

    def begin(self, operation: Operation, now_ms: int) -> None:
        """Have an operation begun, unless it has, or another attempt has taken its place."""
        current = self._plane.state.operations.get(operation.number)
        if current is None or current.attempt != operation.attempt or current.begun_ms:
            return
        name = self._name(operation)
        try:
            self._named(name).begin(operation)
        except Exception as error:  # noqa: BLE001 - a driver's failure is the operation's
            self._report(DriverFailed(operation.number, operation.attempt, _text_of(error)), name)
            return
        self._asks[operation.number] = (operation.attempt, now_ms)
        self._report(DriverBegun(operation.number, operation.attempt), name)

    def abort(self, number: int, now_ms: int) -> None:
        """Have a driver stop caring for an operation that ended without it, unless it has."""
        self._asks.pop(number, None)
        self._waits.pop(number, None)
        _, tries = self._aborts.pop(number, (0, 0))
        operation = self._plane.state.aborts.get(number)
        if operation is None:
            return
        name = self._name(operation)
        try:
            self._named(name).abort(operation)
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver was not told
            self._abort_again(operation, error, now_ms=now_ms, tries=tries + 1)
        else:
            self._report(DriverAborted(number), name)

    def ask(self, now_ms: int) -> None:
        """Ask every driver whose time has come how far it is, and abort what could not be."""
        for number, (at_ms, _) in list(self._aborts.items()):
            if at_ms <= now_ms:
                self.abort(number, now_ms)
        for number, (attempt, at_ms) in list(self._asks.items()):
            if at_ms <= now_ms:
                self._ask(number, attempt, now_ms)

    def _ask(self, number: int, attempt: int, now_ms: int) -> None:
        operation = self._plane.state.operations.get(number)
        self._waits.pop(number, None)
        if (
            operation is None
            or operation.state is not OperationState.RUNNING
            or operation.attempt != attempt
        ):
            del self._asks[number]  # it has ended, or is begun anew and asked after from then on
            return
        name = self._name(operation)
        try:
            progress = self._named(name).progress(operation, now_ms)
        except Exception as error:  # noqa: BLE001 - a driver's failure is the operation's
            del self._asks[number]
            self._report(DriverFailed(number, attempt, _text_of(error)), name)
            return
        if progress.waits and not (progress.done or progress.failed):
            self._waits[number] = progress.waits
        if progress.again_ms and not (progress.done or progress.failed):
            self._asks[number] = (attempt, max(progress.again_ms, now_ms + 1))
            return
        del self._asks[number]
        if progress.done:
            self._report(DriverDone(number, attempt), name)
        elif progress.failed:
            self._report(DriverFailed(number, attempt, _text_of(progress.failed)), name)

    def _abort_again(
        self, operation: Operation, error: Exception, *, now_ms: int, tries: int
    ) -> None:
        """Plan to tell a driver once more, or leave it to people."""
        reason = _text_of(error) or type(error).__name__
        if tries >= ABORT_TRIES:
            self._report(DriverAborted(operation.number, reason), self._name(operation))
            return
        self._aborts[operation.number] = (now_ms + ABORT_AGAIN_MS * 2 ** (tries - 1), tries)
        if tries == 1:
            text = "the driver could not abort %s and is told again: %s"
            log.warning(text, operation.id, reason, extra={"action": "driver.not-told"})

    def _name(self, operation: Operation) -> str:
        """Return the name of who carries an operation out."""
        host = self._plane.state.topology.hosts.get(operation.host)
        return (host.driver if host else "") or self._default

    def _named(self, name: str) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            raise DriverUnknown(name=name, known=", ".join(self._drivers))
        return driver


def _text_of(said: object) -> str:
    """What a driver said, as it can be written: an odd byte of a program's output is escaped."""
    return str(said).encode("utf-8", "backslashreplace").decode("utf-8")
