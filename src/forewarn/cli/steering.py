"""`forewarn clock`, `scenario` and `fault`: steer an emulator that runs, over the operator API.

No emulator is started in here; that is `emulate.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.files import text_of
from forewarn.exits import OK

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from forewarn.cli.client import Client
    from forewarn.cli.parsing import Commands


def add_commands(commands: Commands) -> None:
    """Add `clock`, `scenario` and `fault`."""
    clock = commands.group("clock")
    clock.command("show", "show the clock", run=_show_clock)
    advance = clock.command("advance", "move the clock ahead, as if time had passed", run=_advance)
    advance.add_argument("by", metavar="DURATION", help="such as 90s, 15m, 1h30m or 7d")
    speed = clock.command("speed", "run the clock at another speed", run=_speed)
    speed.add_argument("speed", metavar="N", type=float, help="its seconds to a real second")
    clock.command("pause", "let the clock stand still", run=_pause)
    clock.command("resume", "let the clock run again", run=_resume)
    scenario = commands.group("scenario")
    scenario.command("list", "list the scenarios, and how far they are", run=_list_scenarios)
    show = scenario.command("show", "show what a scenario does", run=_show_scenario)
    show.add_argument("name", metavar="NAME")
    start = scenario.command("run", "begin to run a scenario", run=_run_scenario)
    start.add_argument(
        "name", metavar="NAME|FILE", help="a listed one, or a file that ends in .toml"
    )
    start.add_argument("--vm", metavar="NAME", help="the VM it happens to (else the default one)")
    stop = scenario.command("stop", "stop a scenario; what it brought is taken back", run=_stop)
    stop.add_argument("name", metavar="NAME")
    fault = commands.group("fault")
    fault.command("list", "list the faults that are set", run=_list_faults)
    put = fault.command("set", "set a fault", run=_set_fault)
    put.add_argument("fault", metavar="KIND[=ARG]", help="see docs/howto/emulator-faults.md")
    clear = fault.command("clear", "take faults back", run=_clear_fault)
    clear.add_argument("kind", metavar="KIND", nargs="?", help="that one; without it all of them")


def _client(arguments: argparse.Namespace) -> Client:
    from forewarn.cli.client import client_of  # noqa: PLC0415 - `emulate` starts without it

    return client_of(arguments)


def _part(name: str) -> str:
    from forewarn.cli.client import part  # noqa: PLC0415

    return part(name)


# --- clock -------------------------------------------------------------------------------------


def _print_clock(arguments: argparse.Namespace, answer: dict[str, Any]) -> int:
    from forewarn.cli.table import print_json  # noqa: PLC0415

    if arguments.json:
        return print_json(answer)
    pace = "paused" if answer["paused"] else f"runs at {answer['speed']:g} times real time"
    print(f"{answer['now']}, {pace}")
    return OK


def _show_clock(arguments: argparse.Namespace) -> int:
    return _print_clock(arguments, _client(arguments).get("/v1/clock"))


def _advance(arguments: argparse.Namespace) -> int:
    answer = _client(arguments).post("/v1/clock/advance", {"by": arguments.by})
    return _print_clock(arguments, answer)


def _speed(arguments: argparse.Namespace) -> int:
    answer = _client(arguments).post("/v1/clock/speed", {"speed": arguments.speed})
    return _print_clock(arguments, answer)


def _pause(arguments: argparse.Namespace) -> int:
    return _print_clock(arguments, _client(arguments).post("/v1/clock/pause"))


def _resume(arguments: argparse.Namespace) -> int:
    return _print_clock(arguments, _client(arguments).post("/v1/clock/resume"))


# --- scenarios ---------------------------------------------------------------------------------


def _list_scenarios(arguments: argparse.Namespace) -> int:
    from forewarn.cli.table import print_json, print_table  # noqa: PLC0415

    answer = _client(arguments).get("/v1/scenarios")
    if arguments.json:
        return print_json(answer)
    rows = [(each["name"], _state(each), each["title"]) for each in answer["scenarios"]]
    print_table(("scenario", "state", "what happens"), rows)
    return OK


def _state(scenario: dict[str, Any]) -> str:
    run = scenario["run"]
    if run is None:
        return ""
    state: str = run["state"]
    return f"{state} {run['steps_done']}/{run['steps']}" if state == "running" else state


def _show_scenario(arguments: argparse.Namespace) -> int:
    from forewarn.cli.table import print_json  # noqa: PLC0415

    answer = _client(arguments).get(f"/v1/scenarios/{_part(arguments.name)}")
    if arguments.json:
        return print_json(answer)
    print(answer["text"] or f"{answer['title']}\n\n{answer['about']}")
    _print_run(answer)
    return OK


def _run_scenario(arguments: argparse.Namespace) -> int:
    from forewarn.cli.table import print_json  # noqa: PLC0415

    name, text = arguments.name, None
    if name.endswith(".toml"):
        from pathlib import PurePath  # noqa: PLC0415 - only where a file is named

        text = text_of(name)
        name = PurePath(name).stem
    form = {"vm": arguments.vm, "text": text}
    answer = _client(arguments).post(f"/v1/scenarios/{_part(name)}/run", form)
    if arguments.json:
        return print_json(answer)
    print(answer["about"] or answer["title"])
    _print_run(answer)
    return OK


def _stop(arguments: argparse.Namespace) -> int:
    from forewarn.cli.table import print_json  # noqa: PLC0415

    answer = _client(arguments).post(f"/v1/scenarios/{_part(arguments.name)}/stop")
    if arguments.json:
        return print_json(answer)
    _print_run(answer)
    return OK


def _print_run(scenario: dict[str, Any]) -> None:
    run = scenario["run"]
    if run is not None:
        problem = f": {run['problem']}" if run["problem"] else ""
        print(f"scenario {scenario['name']} on {run['vm']}: {run['state']}{problem}")


# --- faults ------------------------------------------------------------------------------------


def _print_faults(arguments: argparse.Namespace, answer: dict[str, Any]) -> int:
    from forewarn.cli.table import print_json, print_table  # noqa: PLC0415

    if arguments.json:
        return print_json(answer)
    rows = [(each["kind"], each["fault"]) for each in answer["faults"]]
    print_table(("kind", "fault"), rows, empty="no fault is set")
    return OK


def _list_faults(arguments: argparse.Namespace) -> int:
    return _print_faults(arguments, _client(arguments).get("/v1/faults"))


def _set_fault(arguments: argparse.Namespace) -> int:
    answer = _client(arguments).post("/v1/faults", {"fault": arguments.fault})
    return _print_faults(arguments, answer)


def _clear_fault(arguments: argparse.Namespace) -> int:
    path = f"/v1/faults/{_part(arguments.kind)}" if arguments.kind else "/v1/faults"
    return _print_faults(arguments, _client(arguments).delete(path))
