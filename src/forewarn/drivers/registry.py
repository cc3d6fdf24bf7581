"""The kinds of drivers, and the creation of one driver for each table `[drivers.NAME]`.

Some kinds are built in. Installed packages provide other kinds in the entry point group
`forewarn.drivers`, as callables with the driver's name and options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeAlias

from forewarn.drivers import Driver
from forewarn.errors import CallerError, ForewarnError
from forewarn.validation.fields import ValidationFailed

Options: TypeAlias = Mapping[str, object]
Factory: TypeAlias = Callable[[str, Options, str], Driver]

#: Group of entry points for kinds of drivers in other packages.
GROUP = "forewarn.drivers"
#: Option with the kind of a driver; the default is the driver's name.
KIND = "kind"


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


def make_drivers(tables: Mapping[str, Options], store: str) -> dict[str, Driver]:
    """Create the drivers of all tables and the drivers that need no table; return them by name.

    `store` is the address of the store for task records.

    Raises:
        DriverKindUnknown: the kind of a table is unknown.
        DriverUnusable: a driver's options are wrong, or its package cannot be loaded.
    """
    drivers = {
        name: make_driver(name, {}) for name in ("manual", "simulated") if name not in tables
    }
    return drivers | {name: make_driver(name, options, store) for name, options in tables.items()}


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
        DriverUnusable: the options are wrong, or the package cannot be loaded.
    """
    kind = options.get(KIND, name)
    factory = _factory(kind) if isinstance(kind, str) else None
    if factory is None:
        known = ", ".join(sorted({*_installed(), *_BUILT_IN}))
        raise DriverKindUnknown(name=name, kind=kind, known=known)
    try:
        given = {key: value for key, value in options.items() if key != KIND}
        return factory(name, given, store)
    except ValidationFailed as error:
        raise DriverUnusable(name=name, reason=error.without(f"[drivers.{name}]")) from error
    except ForewarnError as error:
        raise DriverUnusable(name=name, reason=error.clause) from error
    except Exception as error:  # convert all errors of a package, to name the package
        raise DriverUnusable(name=name, reason=f"{type(error).__name__}: {error}") from error


def _factory(kind: str) -> Factory | None:
    """Return the factory of a kind of driver, or None.

    Built-in kinds have priority and need no scan of installed packages, which would take longer
    than the rest of a start.
    """
    if module := _BUILT_IN.get(kind):
        factory: Factory = import_module(module).create
        return factory
    return _installed().get(kind)


def _installed() -> dict[str, Factory]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - seldom needed, slow to load

    return {each.name: _loading(each.load) for each in entry_points(group=GROUP)}


def _loading(load: Callable[[], Callable[[str, Options], Driver]]) -> Factory:
    """Return a factory that imports its package when creating a driver."""

    def make(name: str, options: Options, _: str) -> Driver:
        return load()(name, options)

    return make


#: Module of each built-in kind, imported only for a driver of the kind.
_BUILT_IN = {
    "manual": "forewarn.drivers.manual",
    "simulated": "forewarn.drivers.simulated",
    "command": "forewarn.drivers.command.driver",
    "webhook": "forewarn.drivers.webhook.driver",
    "libvirt": "forewarn.drivers.libvirt.driver",
    "nova": "forewarn.drivers.nova.driver",
    "kubernetes": "forewarn.drivers.kubernetes.driver",
}
