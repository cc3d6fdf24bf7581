"""The parts that the settings name: drivers, gates, and destinations of the outbox.

Modules of drivers and destinations are imported only if the settings name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn_base.extensions import raise_together
from forewarn_base.values import replace
from forewarn_drivers.registry import make_drivers, not_installed, scheduling, unscheduled
from forewarn_server.control.degraded import DegradedParts
from forewarn_server.control.driver_calls import DriverUnknown
from forewarn_server.service.settings_check import policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from forewarn_base.errors import ForewarnError
    from forewarn_base.settings import Settings
    from forewarn_core.fleet.state import State
    from forewarn_drivers import Driver
    from forewarn_server.control.gate_checks import Gate
    from forewarn_server.outbox.delivery import Destination


class ConfiguredParts:
    """Drivers, gates and destinations by their names; a reload changes them in place."""

    def __init__(self, settings: Settings) -> None:
        """Create the parts without opening anything.

        Raises:
            DriverUnknown: the default driver does not exist.
            DriverUnusable: a driver's options are invalid.
            DestinationInvalid: a destination of the outbox is invalid.
            GateInvalid: a gate contradicts itself.
            SettingInvalid: the policy would break a promise.
        """
        tables = {each.name: each.values for each in settings.drivers.tables}
        self.drivers: dict[str, Driver] = make_drivers(tables, settings.store.url)
        self.gates = new_gates(settings)
        self.destinations = new_destinations(settings)
        default = self._default = settings.drivers.default
        if default not in self.drivers:
            raise DriverUnknown(name=default, known=", ".join(self.drivers))
        #: Names what this process cannot use of the state.
        self.degraded = DegradedParts(self.drivers, default, gates=self.gates, unsent=self._unsent)
        self.policy = replace(
            policy_of(settings.lifecycle),
            scheduling_drivers=scheduling(self.drivers, default),
            unscheduled_drivers=unscheduled(self.drivers),
        )

    def adopt(
        self,
        drivers: dict[str, Driver],
        gates: dict[str, Gate],
        destinations: tuple[Destination, ...],
    ) -> None:
        """Use changed drivers, and all new gates and destinations."""
        self.drivers.update(drivers)
        self.gates.update(gates)
        for name in self.gates.keys() - gates.keys():
            del self.gates[name]
        self.destinations = destinations

    def check_unused(self, state: State, sent: Callable[[], Collection[str]]) -> None:
        """Refuse drivers and destinations that are not installed and were never in use. See L-12.

        `sent` returns the destinations that have received entries.

        Raises:
            DriverKindUnknown, DriverUnusable, DestinationInvalid: it is not installed.
            PartsMissing: several are not installed.
        """
        used = {each.driver or self._default for each in state.topology.hosts.values()}
        unused = [each for name, each in self.drivers.items() if name not in used]
        existing = sent() if self._unsent() else ()
        raise_together([*not_installed(unused), *_not_installed(self.destinations, existing)])

    def check_installed(self) -> None:
        """Refuse drivers and destinations that are not installed; raises as `check_unused`."""
        absent = [*not_installed(self.drivers.values()), *_not_installed(self.destinations)]
        raise_together(absent)

    def _unsent(self) -> dict[str, str]:
        """Return the destinations whose package is not installed, with the reason."""
        absent = {each.name: getattr(each.sink, "absent", "") for each in self.destinations}
        return {name: reason for name, reason in absent.items() if reason}


def new_gates(settings: Settings) -> dict[str, Gate]:
    """Return the gates of the settings; without gates nothing is imported."""
    if not settings.gates.tables:
        return {}
    from forewarn_server.control.gate_checks import make_gates  # noqa: PLC0415 - if wanted

    return make_gates({each.name: each.values for each in settings.gates.tables})


def new_destinations(settings: Settings) -> tuple[Destination, ...]:
    """Return the destinations of the settings; without destinations nothing is imported."""
    if not settings.outbox.tables:
        return ()
    from forewarn_server.outbox.destinations import make_destinations  # noqa: PLC0415 - if wanted

    return make_destinations({each.name: each.values for each in settings.outbox.tables})


def check_destinations(destinations: Sequence[Destination], existing: Collection[str] = ()) -> None:
    """Refuse destinations whose package is not installed, except those in `existing`.

    Raises:
        DestinationInvalid: a package is missing.
        PartsMissing: several are missing.
    """
    raise_together(_not_installed(destinations, existing))


def _not_installed(
    destinations: Sequence[Destination], existing: Collection[str] = ()
) -> list[ForewarnError]:
    """Return the errors of destinations that are not installed, except those in `existing`."""
    if not destinations:
        return []
    from forewarn_server.outbox import destinations as module  # noqa: PLC0415 - loaded by now

    return module.not_installed(each for each in destinations if each.name not in existing)
