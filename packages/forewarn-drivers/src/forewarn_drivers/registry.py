"""The kinds of drivers, and the creation of one driver for each table `[drivers.NAME]`.

A kind is an entry point of the group `forewarn.drivers`: a callable with the driver's name, its
options and its `TaskRecords`, which returns the driver. A callable of another package may lack the
third parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.extensions import ExtensionGroup, ExtensionMissing, ExtensionUnusable
from forewarn_base.validation.fields import ValidationFailed
from forewarn_drivers import Driver, Progress, Task
from forewarn_drivers.task_records import TaskRecords

Options: TypeAlias = Mapping[str, object]

#: The kinds of drivers; a module is imported only for a driver of the kind.
DRIVERS = ExtensionGroup(
    "driver",
    {
        "manual": "forewarn_drivers.manual:create",
        "simulated": "forewarn_drivers.simulated:create",
        "command": "forewarn_drivers.command.driver:create",
        "webhook": "forewarn_drivers.webhook.driver:create",
    },
    {
        "kubernetes": "forewarn-kubernetes",
        "libvirt": "forewarn-libvirt",
        "nova": "forewarn-openstack",
    },
    extras={"libvirt": "libvirt", "nova": "nova"},
)
#: Option with the kind of a driver; the default is the driver's name.
KIND = "kind"
#: The calls that every driver has.
_CALLS = ("begin", "progress", "abort")


class DriverKindUnknown(CallerError):
    """A kind of driver is neither built in nor installed."""

    code = "driver-kind-unknown"
    status = 422
    message = "[drivers.{name}] has the kind {kind}, which is neither built in nor installed."
    advice = "Use one of: {known}. Or install the package with this kind."


class DriverUnusable(CallerError):
    """A driver's options are invalid."""

    code = "driver-unusable"
    status = 422
    message = "[drivers.{name}] cannot be used: {reason}."
    advice = "Correct the driver's options; see 'Drivers' in the documentation."


class AbsentDriver:
    """Placeholder for a driver whose kind or package is not installed; each call fails."""

    def __init__(self, name: str, error: ForewarnError) -> None:
        """Fail calls with an error."""
        self.name = name
        self.error = error

    @property
    def reason(self) -> str:
        """Why the driver is missing, without a full stop."""
        return str(self.error).removesuffix(".")

    def begin(self, task: Task) -> None:  # noqa: ARG002 - as a driver
        """Fail."""
        raise self.error

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002 - as a driver
        """Fail."""
        raise self.error

    def abort(self, task: Task) -> None:  # noqa: ARG002 - as a driver
        """Fail."""
        raise self.error


def make_drivers(tables: Mapping[str, Options], store: str) -> dict[str, Driver]:
    """Create the drivers of all tables and the drivers that need no table; return them by name.

    A driver whose kind or package is not installed is an `AbsentDriver`. `store` is the address of
    the store for task records.

    Raises:
        DriverUnusable: a driver's options are wrong.
    """
    drivers = {
        name: make_driver(name, {}) for name in ("manual", "simulated") if name not in tables
    }
    return drivers | {
        name: _make_or_absent(name, options, store) for name, options in tables.items()
    }


def _make_or_absent(name: str, options: Options, store: str) -> Driver:
    try:
        return make_driver(name, options, store)
    except (DriverKindUnknown, ExtensionMissing) as error:
        return AbsentDriver(name, error)
    except DriverUnusable as error:
        if not _is_uninstalled(error):
            raise
        return AbsentDriver(name, error)


def _is_uninstalled(error: BaseException) -> bool:
    """Whether an error is due to a package that is not installed, or cannot be loaded."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    return any(isinstance(each, ImportError | ExtensionUnusable) for each in causes)


def not_installed(drivers: Iterable[Driver]) -> list[ForewarnError]:
    """Return the errors of absent drivers."""
    return [each.error for each in drivers if isinstance(each, AbsentDriver)]


def scheduling(drivers: Mapping[str, Driver], default: str) -> frozenset[str]:
    """Return the names of drivers that choose destinations; the default driver is an empty text."""
    names = {name for name, driver in drivers.items() if getattr(driver, "schedules", False)}
    return frozenset({*names, ""} if default in names else names)


def unscheduled(drivers: Mapping[str, Driver]) -> frozenset[str]:
    """Return the names of drivers that move VMs only to destinations that the service chooses."""
    return frozenset(name for name, each in drivers.items() if getattr(each, "unscheduled", False))


def make_driver(name: str, options: Options, store: str = "") -> Driver:
    """Create a driver, with task records in the store at an address.

    Raises:
        DriverKindUnknown: the kind is unknown.
        ExtensionMissing: the kind is in a package of Forewarn's that is not installed.
        DriverUnusable: the options are wrong, or the package cannot be loaded.
    """
    kind = options.get(KIND, name)
    extension = DRIVERS.find(kind) if isinstance(kind, str) else None
    if extension is None:
        raise DriverKindUnknown(name=name, kind=kind, known=", ".join(DRIVERS.names()))
    table = {key: value for key, value in options.items() if key != KIND}
    records = TaskRecords(store, name)
    try:
        if not extension.package:
            driver: Driver = extension.load()(name, table, records)
            return driver
        return extension.use(lambda factory: _installed_driver(factory, table, records))
    except ValidationFailed as error:
        raise DriverUnusable(name=name, reason=error.without(f"[drivers.{name}]")) from error
    except ForewarnError as error:
        raise DriverUnusable(name=name, reason=error.clause) from error
    except Exception as error:  # convert all errors of a package, to name the package
        raise DriverUnusable(name=name, reason=f"{type(error).__name__}: {error}") from error


def _installed_driver(
    factory: Callable[..., Driver], options: Options, records: TaskRecords
) -> Driver:
    """Return the driver of another package's factory, which may lack the third parameter."""
    import inspect  # noqa: PLC0415 - only for drivers of other packages

    parameters = inspect.signature(factory)
    try:
        parameters.bind(records.driver, options, records)
    except TypeError:
        parameters.bind(records.driver, options)
        driver = factory(records.driver, options)
    else:
        driver = factory(records.driver, options, records)
    if lacking := [each for each in _CALLS if not callable(getattr(driver, each, None))]:
        raise TypeError(f"its driver has no {' and no '.join(lacking)}")
    return driver
