"""`forewarn emulator`: run an emulator, or control a running emulator over the operator API.

`run_command.py` starts the emulator.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Annotated, Any

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_server.cli.api_client import ApiClient, ApiRefused, client_of, part
from forewarn_server.cli.application import application, noun_app
from forewarn_server.cli.defaults import FAULT_HELP
from forewarn_server.cli.output import note, print_file, print_structured, show_list
from forewarn_server.cli.parameters import (
    COMMON,
    Config,
    Number,
    ServerOptions,
)
from forewarn_server.cli.text_files import text_of

emulator = noun_app("emulator")
clock = application("clock", "show or move the emulator's clock")
scenario = application("scenario", "list, run or stop scenarios")
fault = application("fault", "list, set or clear faults in the answers to VMs")
for _app in (clock, scenario, fault):
    emulator.command(_app)
emulator.command("forewarn_emulator.run_command:run_emulator", name="run")


class EmulatorMissing(CallerError):
    """An emulator command was sent to a service."""

    code = "emulator-missing"
    status = 409
    message = (
        "The server at this address is a Forewarn service (`forewarn serve`), not an emulator."
    )
    advice = (
        "Start an emulator with `forewarn emulate`, or set its address with --server or "
        "FOREWARN_SERVER."
    )


class EmulatorClient(ApiClient):
    """A client that fails with `EmulatorMissing` if the server is a service."""

    def send(
        self, method: str, path: str, *, body: bytes = b"", kind: str = "", key: str = ""
    ) -> bytes:
        """Send a request, as `ApiClient.send`."""
        try:
            return super().send(method, path, body=body, kind=kind, key=key)
        except ApiRefused as refusal:
            if refusal.code != "no-such-path":
                raise
            raise EmulatorMissing from refusal


# --- clock -------------------------------------------------------------------------------------


def _print_clock(common: ServerOptions, answer: dict[str, Any]) -> int:
    if common.structured:
        return print_structured(common, answer)
    pace = "stopped" if answer["stopped"] else f"runs at {answer['speed']:g} times real time"
    print(f"{answer['now']}, {pace}")
    return OK


@clock.default
@clock.command(name="show")
def _emulator_clock_show(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Show the clock."""
    return _print_clock(common, client_of(common, EmulatorClient).get("/v1/clock"))


@clock.command(name="advance")
def _advance(
    by: Annotated[str, Parameter(name="DURATION", help="such as 90s, 15m, 1h30m or 7d")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Move the clock forward."""
    from forewarn_base.validation.fields import Duration  # noqa: PLC0415
    from forewarn_emulator.options import ADVANCE_S_MAX  # noqa: PLC0415

    Duration(0, ADVANCE_S_MAX).read(by, "DURATION")
    answer = client_of(common, EmulatorClient).post("/v1/clock/advance", {"by": by})
    return _print_clock(common, answer)


@clock.command(name="speed")
def _speed(
    speed: Annotated[Number, Parameter(name="N", help="emulated seconds per real second")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Run the clock at another speed."""
    answer = client_of(common, EmulatorClient).post("/v1/clock/speed", {"speed": speed})
    return _print_clock(common, answer)


@clock.command(name="stop")
def _emulator_clock_stop(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Stop the clock."""
    return _print_clock(common, client_of(common, EmulatorClient).post("/v1/clock/stop"))


@clock.command(name="start")
def _emulator_clock_start(*, common: ServerOptions = COMMON) -> int:
    """Start the clock again."""
    return _print_clock(common, client_of(common, EmulatorClient).post("/v1/clock/start"))


# --- AKS ---------------------------------------------------------------------------------------


@emulator.command(name="play-aks")
def _play_aks(
    name: Annotated[
        str, Parameter(name="NAME", help="as in [drivers.NAME] (default: kubernetes)")
    ] = "kubernetes",
    /,
    *,
    config: Config = (),
    follow: Annotated[bool, Parameter(help="go on until Ctrl-C")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Cordon and drain the nodes of a cluster before events, as AKS does."""
    from forewarn_emulator.aks_player import AksPlayer  # noqa: PLC0415 - `--help` needs none of it
    from forewarn_server.cli.driver import driver_table  # noqa: PLC0415 - the same
    from forewarn_server.cli.following import create_for_action  # noqa: PLC0415 - the same

    client = client_of(common, EmulatorClient)
    client.get("/v1/clock")  # only an emulator has one
    table, _ = driver_table(name, config)
    player = AksPlayer(client, create_for_action("play-aks", name, table))
    if follow:
        return player.follow()
    done, _ = player.once()
    for each in done:
        note(each)
    return OK


# --- scenarios ---------------------------------------------------------------------------------


@emulator.default
@scenario.default
@scenario.command(name="list")
def _emulator_scenario_list(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """List the scenarios and their progress."""
    answer = client_of(common, EmulatorClient).get("/v1/scenarios")
    columns = (("scenario", "name"), ("state", _state), ("what happens", "title"))
    return show_list(common, answer, columns, name="scenarios")


def _state(scenario: dict[str, Any]) -> str:
    run = scenario["run"]
    if run is None:
        return ""
    state: str = run["state"]
    return f"{state} {run['steps_done']}/{run['steps']}" if state == "running" else state


@scenario.command(name="show")
def _emulator_scenario_show(
    name: Annotated[str, Parameter(name="NAME")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Show what a scenario does."""
    answer = client_of(common, EmulatorClient).get(f"/v1/scenarios/{part(name)}")
    if common.structured:
        return print_structured(common, answer)
    text = answer["text"] or f"{answer['title']}\n\n{answer['about']}"
    print_file(f"{text}\n")
    if answer["run"] is not None:
        print(_run_line(answer), file=sys.stderr)  # users can save the output and run the file
    return OK


@scenario.command(name="run")
def _run(
    name: Annotated[
        str, Parameter(name="NAME|FILE", help="a listed scenario, or a file that ends in .toml")
    ],
    /,
    *,
    vm: Annotated[
        str | None, Parameter(metavar="NAME", help="VM to affect (default: the first VM)")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Run a scenario."""
    text = None
    if name.endswith(".toml"):
        text = text_of(name)
        name = PurePath(name).stem
    form = {"vm": vm, "text": text}
    answer = client_of(common, EmulatorClient).post(f"/v1/scenarios/{part(name)}/run", form)
    if common.structured:
        return print_structured(common, answer)
    print(answer["about"] or answer["title"])
    _print_run(answer)
    return OK


@scenario.command(name="stop")
def _emulator_scenario_stop(
    name: Annotated[str, Parameter(name="NAME")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Stop a scenario and undo its changes."""
    answer = client_of(common, EmulatorClient).post(f"/v1/scenarios/{part(name)}/stop")
    if common.structured:
        return print_structured(common, answer)
    _print_run(answer)
    return OK


def _print_run(scenario: dict[str, Any]) -> None:
    if scenario["run"] is not None:
        print(_run_line(scenario))


def _run_line(scenario: dict[str, Any]) -> str:
    run = scenario["run"]
    problem = f": {run['problem']}" if run["problem"] else ""
    return f"scenario {scenario['name']} on {run['vm']}: {run['state']}{problem}"


# --- faults ------------------------------------------------------------------------------------


def _print_faults(common: ServerOptions, answer: dict[str, Any]) -> int:
    columns = ("kind", "fault")
    return show_list(common, answer, columns, name="faults", empty="No faults.")


@fault.default
@fault.command(name="list")
def _emulator_fault_list(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """List the active faults."""
    return _print_faults(common, client_of(common, EmulatorClient).get("/v1/faults"))


@fault.command(name="set")
def _set(
    text: Annotated[
        str,
        Parameter(
            name="KIND[=ARG]",
            help=FAULT_HELP,
        ),
    ],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Set a fault."""
    answer = client_of(common, EmulatorClient).post("/v1/faults", {"fault": text})
    return _print_faults(common, answer)


@fault.command(name="clear")
def _clear(
    kind: Annotated[
        str | None, Parameter(name="KIND", help="the fault to clear (default: all)")
    ] = None,
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Clear faults."""
    path = f"/v1/faults/{part(kind)}" if kind else "/v1/faults"
    return _print_faults(common, client_of(common, EmulatorClient).delete(path))
