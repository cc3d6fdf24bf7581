"""`forewarn driver`: list and check drivers of the settings, and discover machines.

The commands call the driver directly, without the service.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from forewarn.cli.output import print_json, show_list
from forewarn.cli.parsing import CommandGroup, add_config_option, settings_files
from forewarn.errors import CallerError, PeerError, reason_of

#: Timeout of the program that counts effects, in seconds.
EFFECTS_TIMEOUT_S = 30


class DriverNotSet(CallerError):
    """The named driver is missing in the settings."""

    code = "driver-not-set"
    status = 404
    message = "The settings have no driver {name}."
    advice = "Use a driver of the settings ({known}), or name another settings file with --config."


class EffectsUncounted(PeerError):
    """The program that counts effects did not print a number."""

    code = "driver-effects-uncounted"
    message = "{program} gave no count of {task}: {reason}."
    advice = "The program receives the task's id, such as op-12/1, and must print a whole number."


def add_commands(commands: CommandGroup) -> None:
    """Add `driver`."""
    group = commands.group("driver")
    listing = group.command("list", "list the drivers of the settings", run=_list, remote=False)
    add_config_option(listing)
    check = group.command(
        "check",
        "check a driver's guarantees; this executes real work on the host",
        run=_check,
        remote=False,
    )
    check.option("--host NAME", "host to work on", required=True)
    check.option("--vm NAME", "work on this VM instead of the host", default="")
    check.option("--effects PROGRAM", "prints how often the task with the given id was started")
    check.option("--task-timeout SECONDS", "(default: 600)", type=float, default=600.0)
    check.flag(
        "--as-is", "use the driver's own name; requires that no running service uses the driver"
    )
    discover = group.command(
        "discover", "print the topology that a driver discovers", run=_discover, remote=False
    )
    for parser in (check, discover):
        parser.add_argument("name", metavar="NAME", help="as in [drivers.NAME]")
        add_config_option(parser)


def _list(arguments: argparse.Namespace) -> int:
    from forewarn.drivers.registry import KIND  # noqa: PLC0415 - `--help` needs none of it

    tables, _ = _driver_tables(arguments)
    kinds = {name: str(table.get(KIND, name)) for name, table in tables.items()}
    answer = {"drivers": [{"name": name, "kind": kind} for name, kind in kinds.items()]}
    return show_list(arguments, answer, (("driver", "name"), "kind"), name="drivers")


def _check(arguments: argparse.Namespace) -> int:
    from forewarn.cli.conformance import finish, show  # noqa: PLC0415 - `--help` needs none of it
    from forewarn.conformance.driver_checks import run_driver_checks  # noqa: PLC0415 - the same
    from forewarn.conformance.driver_trial import Subject  # noqa: PLC0415 - the same
    from forewarn.drivers.registry import make_driver  # noqa: PLC0415 - the same
    from forewarn.store import open_store  # noqa: PLC0415 - the same

    name, (table, call_s) = arguments.name, driver_table(arguments)
    effects = None
    if arguments.effects:
        effects = lambda task: _count(arguments.effects, task)  # noqa: E731 - one of two
    results = []
    # Programs of the check may still write into this directory.
    with tempfile.TemporaryDirectory("", "forewarn-check-", ignore_cleanup_errors=True) as scratch:
        store = str(Path(scratch) / "store.db")
        open_store(store).close()
        if not arguments.as_is:
            name, table = separate_driver(name, table)
        subject = Subject(
            lambda: make_driver(name, table, store),
            arguments.host,
            arguments.vm,
            effects=effects,
            call_s=call_s,
            task_s=arguments.task_timeout,
        )
        for result in run_driver_checks(subject):
            results.append(result)
            if not arguments.json:
                show(result)
    return finish(results, {"driver": arguments.name}, as_json=arguments.json)


def separate_driver(name: str, table: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return a driver name and settings for a check, separate from those of a service.

    A driver stores the highest writer generation of its callers under its name, and refuses calls
    with a lower generation. The generation of a check exceeds that of any service.
    """
    from forewarn.drivers.registry import KIND  # noqa: PLC0415 - `--help` needs none of it

    return f"{name}-check", {KIND: name, **table}


def _discover(arguments: argparse.Namespace) -> int:
    from forewarn.drivers import Discovering  # noqa: PLC0415 - `--help` needs none of it
    from forewarn.drivers.registry import make_driver  # noqa: PLC0415 - the same

    driver = make_driver(arguments.name, driver_table(arguments)[0])
    return print_json(dict(driver.discover()) if isinstance(driver, Discovering) else {})


def driver_table(arguments: argparse.Namespace) -> tuple[Mapping[str, object], float]:
    """Return the settings of the named driver, and the timeout of driver calls in seconds.

    Raises:
        DriverNotSet: the driver is not in the settings.
    """
    tables, call_timeout_s = _driver_tables(arguments)
    if arguments.name not in tables:
        raise DriverNotSet(name=arguments.name, known=", ".join(tables))
    return tables[arguments.name], call_timeout_s


def _driver_tables(arguments: argparse.Namespace) -> tuple[dict[str, Mapping[str, object]], float]:
    """Return the settings of each driver by name, and the timeout of driver calls in seconds."""
    from forewarn.settings_loader import load_settings  # noqa: PLC0415 - `--help` needs none of it

    drivers = load_settings(settings_files(arguments)).drivers
    tables: dict[str, Mapping[str, object]]
    tables = {"manual": {}, "simulated": {}} | {each.name: each.values for each in drivers.tables}
    return tables, drivers.call_timeout_s


def _count(program: str, task: str) -> int:
    try:
        ran = subprocess.run(  # noqa: S603 - the operator's own program
            [program, task], stdout=subprocess.PIPE, timeout=EFFECTS_TIMEOUT_S, check=True
        )
        return int(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EffectsUncounted(program=program, task=task, reason=reason_of(error)) from error
