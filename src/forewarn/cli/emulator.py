"""`forewarn emulator`: run an emulator, or control a running emulator over the operator API.

`emulator_run.py` starts the emulator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import PurePath
from typing import Any

from forewarn.cli.api_client import ApiRefused, client_of, part
from forewarn.cli.emulator_run import FAULT_HELP, add_run
from forewarn.cli.output import print_file, print_json, show_list
from forewarn.cli.parsing import CommandGroup, Parser
from forewarn.cli.text_files import text_of
from forewarn.errors import CallerError
from forewarn.exit_codes import OK


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


def add_commands(commands: CommandGroup) -> None:
    """Add `emulator`."""
    emulator = commands.group("emulator", default="scenario")
    add_run(emulator, "run", "run an emulator until Ctrl-C; `forewarn emulate` is the short form")
    clock = emulator.group("clock", "show or move the emulator's clock", default="show")
    _add(clock, "show", "show the clock", _show_clock)
    advance = _add(clock, "advance", "move the clock forward", _advance)
    advance.add_argument("by", metavar="DURATION", help="such as 90s, 15m, 1h30m or 7d")
    speed = _add(clock, "speed", "run the clock at another speed", _speed)
    speed.add_argument("speed", metavar="N", type=float, help="emulated seconds per real second")
    _add(clock, "stop", "stop the clock", _switch_clock)
    _add(clock, "start", "start a stopped clock", _switch_clock)
    scenario = emulator.group("scenario", "list, run or stop scenarios")
    _add(scenario, "list", "list the scenarios and their progress", _list_scenarios)
    show = _add(scenario, "show", "show what a scenario does", _show_scenario)
    show.add_argument("name", metavar="NAME")
    start = _add(scenario, "run", "run a scenario", _run_scenario)
    start.add_argument(
        "name", metavar="NAME|FILE", help="a listed scenario, or a file that ends in .toml"
    )
    start.option("--vm NAME", "VM to affect (default: the first VM)")
    stop = _add(scenario, "stop", "stop a scenario and undo its changes", _stop)
    stop.add_argument("name", metavar="NAME")
    fault = emulator.group("fault", "list, set or clear faults in the answers to VMs")
    _add(fault, "list", "list the active faults", _list_faults)
    put = _add(fault, "set", "set a fault", _set_fault)
    put.add_argument("fault", metavar="KIND[=ARG]", help=FAULT_HELP)
    clear = _add(fault, "clear", "clear faults", _clear_fault)
    clear.add_argument("kind", metavar="KIND", nargs="?", help="the fault to clear (default: all)")


def _add(
    group: CommandGroup, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> Parser:
    """Add a command that fails with `EmulatorMissing` if the server is a service."""

    @wraps(run)
    def steered(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except ApiRefused as refusal:
            if refusal.code != "no-such-path":
                raise
            raise EmulatorMissing from refusal

    return group.command(name, text, run=steered)


# --- clock -------------------------------------------------------------------------------------


def _print_clock(arguments: argparse.Namespace, answer: dict[str, Any]) -> int:
    if arguments.json:
        return print_json(answer)
    pace = "stopped" if answer["stopped"] else f"runs at {answer['speed']:g} times real time"
    print(f"{answer['now']}, {pace}")
    return OK


def _show_clock(arguments: argparse.Namespace) -> int:
    return _print_clock(arguments, client_of(arguments).get("/v1/clock"))


def _advance(arguments: argparse.Namespace) -> int:
    from forewarn.emulator.options import ADVANCE_S_MAX  # noqa: PLC0415
    from forewarn.validation.fields import Duration  # noqa: PLC0415

    Duration(0, ADVANCE_S_MAX).read(arguments.by, "DURATION")
    answer = client_of(arguments).post("/v1/clock/advance", {"by": arguments.by})
    return _print_clock(arguments, answer)


def _speed(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).post("/v1/clock/speed", {"speed": arguments.speed})
    return _print_clock(arguments, answer)


def _switch_clock(arguments: argparse.Namespace) -> int:
    return _print_clock(arguments, client_of(arguments).post(f"/v1/clock/{arguments.action}"))


# --- scenarios ---------------------------------------------------------------------------------


def _list_scenarios(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get("/v1/scenarios")
    columns = (("scenario", "name"), ("state", _state), ("what happens", "title"))
    return show_list(arguments, answer, columns, name="scenarios")


def _state(scenario: dict[str, Any]) -> str:
    run = scenario["run"]
    if run is None:
        return ""
    state: str = run["state"]
    return f"{state} {run['steps_done']}/{run['steps']}" if state == "running" else state


def _show_scenario(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get(f"/v1/scenarios/{part(arguments.name)}")
    if arguments.json:
        return print_json(answer)
    text = answer["text"] or f"{answer['title']}\n\n{answer['about']}"
    print_file(f"{text}\n")
    if answer["run"] is not None:
        print(_run_line(answer), file=sys.stderr)  # users can save the output and run the file
    return OK


def _run_scenario(arguments: argparse.Namespace) -> int:
    name, text = arguments.name, None
    if name.endswith(".toml"):
        text = text_of(name)
        name = PurePath(name).stem
    form = {"vm": arguments.vm, "text": text}
    answer = client_of(arguments).post(f"/v1/scenarios/{part(name)}/run", form)
    if arguments.json:
        return print_json(answer)
    print(answer["about"] or answer["title"])
    _print_run(answer)
    return OK


def _stop(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).post(f"/v1/scenarios/{part(arguments.name)}/stop")
    if arguments.json:
        return print_json(answer)
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


def _print_faults(arguments: argparse.Namespace, answer: dict[str, Any]) -> int:
    columns = ("kind", "fault")
    return show_list(arguments, answer, columns, name="faults", empty="No faults.")


def _list_faults(arguments: argparse.Namespace) -> int:
    return _print_faults(arguments, client_of(arguments).get("/v1/faults"))


def _set_fault(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).post("/v1/faults", {"fault": arguments.fault})
    return _print_faults(arguments, answer)


def _clear_fault(arguments: argparse.Namespace) -> int:
    path = f"/v1/faults/{part(arguments.kind)}" if arguments.kind else "/v1/faults"
    return _print_faults(arguments, client_of(arguments).delete(path))
