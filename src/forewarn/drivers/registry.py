"""Which kinds of drivers there are, and one driver made for each table `[drivers.NAME]`.

A kind is built in, or an installed package offers it under the entry point group
`forewarn.drivers`: a callable that is given the driver's name and its options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from forewarn.drivers.manual import ManualDriver
from forewarn.drivers.simulated import SimulatedDriver
from forewarn.errors import CallerError, ForewarnError
from forewarn.validation.fields import ValidationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forewarn.drivers import Driver

    Options: TypeAlias = Mapping[str, object]
    Factory: TypeAlias = Callable[[str, Options, str], Driver]

#: The group of entry points that other packages offer kinds of drivers under.
GROUP = "forewarn.drivers"
#: The option that names a driver's kind; where it is not given the driver's name is the kind.
KIND = "kind"


class DriverKindUnknown(CallerError):
    """A kind of driver that is neither built in nor installed."""

    code = "driver-kind-unknown"
    status = 422
    message = "[drivers.{name}] is of kind {kind}, and no such driver is installed."
    advice = "Use one of: {known}. Or install the package that has it."


class DriverUnusable(CallerError):
    """A driver that cannot be made of its options."""

    code = "driver-unusable"
    status = 422
    message = "[drivers.{name}] cannot be used: {reason}."
    advice = "Correct its options; see 'Drivers' in the documentation."


def make_drivers(tables: Mapping[str, Options], store: str) -> dict[str, Driver]:
    """Return every driver by its name: one for each table, and those that need none.

    Those that keep records of tasks keep them in the store at this address.

    Raises:
        DriverKindUnknown: no driver is of the kind of a table.
        DriverUnusable: a driver's options are wrong, or its package cannot be loaded.
    """
    drivers = {
        name: make_driver(name, {}) for name in ("manual", "simulated") if name not in tables
    }
    return drivers | {name: make_driver(name, options, store) for name, options in tables.items()}


def scheduling(drivers: Mapping[str, Driver], default: str) -> frozenset[str]:
    """Return the names of the drivers that choose where VMs go; empty text for the default one."""
    names = {name for name, driver in drivers.items() if getattr(driver, "schedules", False)}
    return frozenset({*names, ""} if default in names else names)


def make_driver(name: str, options: Options, store: str = "") -> Driver:
    """Return one driver, which keeps records of tasks, if any, in the store at an address.

    Raises:
        DriverKindUnknown: no driver is of this kind.
        DriverUnusable: its options are wrong, or its package cannot be loaded.
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
        raise DriverUnusable(name=name, reason=str(error).removesuffix(".")) from error
    except Exception as error:  # whatever another package does, the service says which one it was
        raise DriverUnusable(name=name, reason=f"{type(error).__name__}: {error}") from error


def _factory(kind: str) -> Factory | None:
    """Return the factory of a kind; None if there is none.

    Nothing can take the place of a built-in one: those are found without a look at every
    installed package, which takes longer than the rest of a start.
    """
    return _BUILT_IN.get(kind) or _installed().get(kind)


def _installed() -> dict[str, Factory]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - seldom needed, slow to load

    return {each.name: _loading(each.load) for each in entry_points(group=GROUP)}


def _loading(load: Callable[[], Callable[[str, Options], Driver]]) -> Factory:
    """Return what loads a package only when a driver of it is made."""

    def make(name: str, options: Options, _: str) -> Driver:
        return load()(name, options)

    return make


def _manual(name: str, options: Options, _: str) -> Driver:
    _take_none(options)
    return ManualDriver(name)


def _simulated(name: str, options: Options, _: str) -> Driver:
    _take_none(options)
    return SimulatedDriver(name)


def _command(name: str, options: Options, store: str) -> Driver:
    from forewarn.drivers.command.driver import create  # noqa: PLC0415 - few services have one

    return create(name, options, store)


def _webhook(name: str, options: Options, store: str) -> Driver:
    from forewarn.drivers.webhook.driver import create  # noqa: PLC0415 - few services have one

    return create(name, options, store)


def _libvirt(name: str, options: Options, _: str) -> Driver:
    from forewarn.drivers.libvirt.config import read_options  # noqa: PLC0415 - few have it
    from forewarn.drivers.libvirt.driver import LibvirtDriver  # noqa: PLC0415

    return LibvirtDriver(read_options(options), name)


def _nova(name: str, options: Options, store: str) -> Driver:
    from forewarn.drivers.nova.driver import create  # noqa: PLC0415 - few services have one

    return create(name, options, store)


def _kubernetes(name: str, options: Options, _: str) -> Driver:
    from forewarn.drivers.kubernetes.driver import create  # noqa: PLC0415 - few services have one

    return create(name, options)


def _take_none(options: Options) -> None:
    if options:
        raise ValueError(f"it has no option {', '.join(options)}")


_BUILT_IN: dict[str, Factory] = {
    "manual": _manual,
    "simulated": _simulated,
    "command": _command,
    "webhook": _webhook,
    "libvirt": _libvirt,
    "nova": _nova,
    "kubernetes": _kubernetes,
}
