"""Which drivers a control plane has, and how they may be called. Nobody is called from here."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from forewarn.control.driver_calls import CallLimits, CallObserver, DaemonThreads, Executor
from forewarn.errors import CallerError
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.control.gate_checks import Gate
    from forewarn.control.planning import Planner
    from forewarn.drivers import Driver


class DriverUnknown(CallerError):
    """A driver that is not built in."""

    code = "driver-unknown"
    status = 422
    message = "There is no driver {name}."
    advice = "Use one of: {known}."


@value
class DriverSetup:
    """The drivers of one control plane."""

    #: By name.
    drivers: Mapping[str, Driver]
    #: For hosts that name none.
    default: str
    limits: CallLimits = field(default_factory=CallLimits)
    executor: Executor = field(default_factory=DaemonThreads)
    #: Checks between the waves of maintenances, by name.
    gates: Mapping[str, Gate] = field(default_factory=dict)
    #: Makes plans on a thread of `executor`; None: there and then.
    planner: Planner | None = None
    #: Called for each call; must be quick.
    observe: CallObserver = lambda *_: None

    def named(self, name: str) -> Driver:
        """Return a driver.

        Raises:
            DriverUnknown: there is none of that name.
        """
        driver = self.drivers.get(name)
        if driver is None:
            raise DriverUnknown(name=name, known=", ".join(self.drivers))
        return driver
