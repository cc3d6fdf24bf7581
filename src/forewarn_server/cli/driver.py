"""`forewarn driver`: list and check drivers, discover machines, mark nodes, answer resources.

The commands call the driver directly, without the service, except `mark-nodes` and
`answer-resources`, which use its API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.values import value
from forewarn_server.cli.actions import load_action
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import note, print_json, print_structured, show_list
from forewarn_server.cli.parameters import (
    COMMON,
    PRINTED,
    Config,
    Number,
    OutputOptions,
    ServerOptions,
    settings_files,
)

driver = noun_app("driver")


@value
class DriverCheck:
    """What `driver check` was asked for."""

    #: The driver, as in `[drivers.NAME]`, and the host or VM to work on.
    driver: str
    host: str
    vm: str = ""
    #: Program that prints how often a task was started.
    effects: str | None = None
    task_timeout_s: float = 600.0
    #: Whether the driver keeps its own name.
    as_is: bool = False
    #: The settings files.
    config: Sequence[Path] = ()


class DriverNotSet(CallerError):
    """The named driver is missing in the settings."""

    code = "driver-not-set"
    status = 404
    message = "The settings have no driver {name}."
    advice = "Use a driver of the settings ({known}), or name another settings file with --config."


class DriverUnnamed(CallerError):
    """The driver to check, or the host of the check, is missing."""

    code = "driver-unnamed"
    message = "A check needs a driver and a host: `forewarn driver check NAME --host HOST`."
    advice = "The settings have {known}; name another settings file with --config."


@driver.default
@driver.command(name="list")
def _list(
    *,
    config: Config = (),
    printed: OutputOptions = PRINTED,
) -> int:
    """List the drivers of the settings."""
    from forewarn_drivers.registry import KIND  # noqa: PLC0415 - `--help` needs none of it

    tables, _ = _driver_tables(config)
    kinds = {name: str(table.get(KIND, name)) for name, table in tables.items()}
    answer = {"drivers": [{"name": name, "kind": kind} for name, kind in kinds.items()]}
    return show_list(printed, answer, (("driver", "name"), "kind"), name="drivers")


@driver.command(name="check")
def _check(
    name: Annotated[str, Parameter(name="NAME", help="as in [drivers.NAME]")] = "",
    /,
    *,
    host: Annotated[str, Parameter(metavar="NAME", help="host to work on")] = "",
    vm: Annotated[str, Parameter(metavar="NAME", help="work on this VM instead of the host")] = "",
    effects: Annotated[
        str | None,
        Parameter(
            metavar="PROGRAM", help="prints how often the task with the given id was started"
        ),
    ] = None,
    task_timeout_s: Annotated[
        Number, Parameter(name="--task-timeout", metavar="SECONDS", help="(default: 600)")
    ] = 600.0,
    as_is: Annotated[
        bool,
        Parameter(
            help="use the driver's own name; requires that no running service uses the driver"
        ),
    ] = False,
    config: Config = (),
    printed: OutputOptions = PRINTED,
) -> int:
    """Check a driver's guarantees; this executes real work on the host."""
    if not (name and host):
        raise DriverUnnamed(known=", ".join(_driver_tables(config)[0]))
    check = DriverCheck(
        name, host, vm, effects=effects, task_timeout_s=task_timeout_s, as_is=as_is, config=config
    )
    status: int = load_action("driver-check")(check, as_json=printed.structured)
    return status


@driver.command(name="mark-nodes")
def _mark_nodes(
    name: Annotated[
        str, Parameter(name="NAME", help="as in [drivers.NAME] (default: kubernetes)")
    ] = "kubernetes",
    /,
    *,
    config: Config = (),
    follow: Annotated[bool, Parameter(help="keep the nodes right until Ctrl-C")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Show announced and running work on the Kubernetes nodes of its hosts."""
    from forewarn_server.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs none of it
    from forewarn_server.cli.following import create_for_action  # noqa: PLC0415 - the same
    from forewarn_server.cli.node_notices import NodeMarker  # noqa: PLC0415 - the same

    table, _ = driver_table(name, config)
    marker = NodeMarker(client_of(common), create_for_action("mark-nodes", name, table))
    if follow:
        return marker.follow()
    changed, problems = marker.once()
    if common.structured:
        return print_structured(common, {"changed": changed, "problems": problems})
    for each in problems:
        note(each)
    return REFUSED if problems else OK


@driver.command(name="answer-resources")
def _answer_resources(
    name: Annotated[
        str, Parameter(name="NAME", help="as in [drivers.NAME] (default: kubernetes)")
    ] = "kubernetes",
    /,
    *,
    cluster: Annotated[
        str, Parameter(metavar="NAME", help="the cluster in `kubernetes:CLUSTER:NAMESPACE`")
    ],
    tokens: Annotated[
        Path,
        Parameter(
            metavar="DIRECTORY", help="has a token for each namespace, in a file with its name"
        ),
    ],
    config: Config = (),
    follow: Annotated[bool, Parameter(help="answer until Ctrl-C")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Show events as resources of a cluster, and carry out what its namespaces ask for."""
    from forewarn_server.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs none of it
    from forewarn_server.cli.following import create_for_action  # noqa: PLC0415 - the same
    from forewarn_server.cli.tenant_resources import ResourceAnswerer  # noqa: PLC0415 - the same

    table, _ = driver_table(name, config)
    resources = create_for_action("answer-resources", name, table, cluster=cluster)
    answerer = ResourceAnswerer(client_of(common).server, tokens, resources, ca=common.ca)
    if follow:
        return answerer.follow()
    changed, problems = answerer.once()
    if common.structured:
        return print_structured(common, {"changed": changed, "problems": problems})
    for each in (*changed, *problems):
        note(each)
    return REFUSED if problems else OK


@driver.command(name="discover")
def _discover(
    name: Annotated[str, Parameter(name="NAME", help="as in [drivers.NAME]")],
    /,
    *,
    config: Config = (),
    printed: OutputOptions = PRINTED,  # noqa: ARG001 - it always prints JSON
) -> int:
    """Print the topology that a driver discovers."""
    from forewarn_drivers import Discovering  # noqa: PLC0415 - `--help` needs none of it
    from forewarn_drivers.registry import make_driver  # noqa: PLC0415 - the same

    source = make_driver(name, driver_table(name, config)[0])
    return print_json(dict(source.discover()) if isinstance(source, Discovering) else {})


def driver_table(name: str, config: Sequence[Path]) -> tuple[Mapping[str, object], float]:
    """Return the settings of the named driver, and the timeout of driver calls in seconds.

    Raises:
        DriverNotSet: the driver is not in the settings.
    """
    tables, call_timeout_s = _driver_tables(config)
    if name not in tables:
        raise DriverNotSet(name=name, known=", ".join(tables))
    return tables[name], call_timeout_s


def _driver_tables(config: Sequence[Path]) -> tuple[dict[str, Mapping[str, object]], float]:
    """Return the settings of each driver by name, and the timeout of driver calls in seconds."""
    from forewarn_server.settings_loader import load_settings  # noqa: PLC0415 - `--help` needs none of it

    drivers = load_settings(settings_files(config)).drivers
    tables: dict[str, Mapping[str, object]]
    tables = {"manual": {}, "simulated": {}} | {each.name: each.values for each in drivers.tables}
    return tables, drivers.call_timeout_s
