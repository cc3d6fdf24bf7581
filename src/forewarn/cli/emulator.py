"""`forewarn emulate`, and the emulator's clock, scenarios and faults over the operator API.

No part of the emulator lives here; its wiring is `emulator/emulator.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from forewarn.cli.exits import OK, REFUSED
from forewarn.errors import CallerError

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from forewarn.cli.client import Client
    from forewarn.cli.parsing import Commands
    from forewarn.emulator.emulator import Emulator
    from forewarn.emulator.options import Options
    from forewarn.emulator.scenario import Scenario

#: Longest file of a scenario or a topology, in bytes.
FILE_BYTES_MAX = 16 * 1024 * 1024


class FileUnreadable(CallerError):
    """A file named on the command line that cannot be read."""

    code = "file-unreadable"
    message = "{path} cannot be read: {reason}."
    advice = "Name a text file that is there."


def add_commands(commands: Commands) -> None:
    """Add `emulate`, `clock`, `scenario` and `fault`."""
    _add_emulate(commands)
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


def _add_emulate(commands: Commands) -> None:
    emulate = commands.command("emulate", run=_emulate, remote=False)
    add = emulate.add_argument
    add(
        "--listen",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="where VMs ask: HOST:PORT, [IPV6]:PORT or unix:PATH; repeatable (else 127.0.0.1:8169)",
    )
    add(
        "--operator-listen",
        metavar="ADDRESS",
        default="127.0.0.1:8470",
        help="where the operator API is (default %(default)s); `none`: nowhere",
    )
    add(
        "--vm",
        metavar="NAME",
        action="append",
        default=[],
        help="a VM; repeatable, all in one group; whoever asks is the first (else vm-1)",
    )
    add("--topology", metavar="FILE", help="hosts, groups and VMs from a file (TOML or YAML)")
    add(
        "--scenario",
        metavar="NAME|FILE",
        action="append",
        default=[],
        help="run a scenario at once; repeatable",
    )
    add(
        "--speed",
        metavar="N",
        type=float,
        default=1.0,
        help="seconds of the emulator's clock to a real second (default 1)",
    )
    add("--seed", metavar="N", type=int, help="make event ids and chances repeat")
    add("--store", metavar="PATH", default="", help="keep the state in a file (else in memory)")
    _add_manners(emulate)
    add("--quiet", action="store_true", help="say nothing unless something is wrong")


def _add_manners(emulate: argparse.ArgumentParser) -> None:
    """Add how the emulator treats its clients."""
    add = emulate.add_argument
    add(
        "--fault",
        metavar="KIND[=ARG]",
        action="append",
        default=[],
        help="disturb answers from the start; repeatable; see docs/howto/emulator-faults.md",
    )
    add(
        "--enable-on-first-request",
        metavar="DELAY",
        nargs="?",
        const="0s",
        help="enable a group by its first request, as the public cloud does,"
        " and hold the first answer for DELAY",
    )
    add(
        "--rate-limit",
        metavar="N",
        nargs="?",
        type=_rate,
        const=5.0,
        default=0.0,
        help="at most N requests a second for each VM (N is 5 unless given; else no limit)",
    )
    add(
        "--proxy-secret",
        metavar="FILE",
        help="file with the secret that proxies on this machine sign X-Instance-ID with",
    )


def _rate(text: str) -> float:
    """Return requests a second; argparse tells what is wrong with another word."""
    import argparse  # noqa: PLC0415 - loaded already, but its type is not

    try:
        rate_per_s = float(text)
    except ValueError:
        rate_per_s = 0.0
    if not 0.0 < rate_per_s < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate above 0")
    return rate_per_s


# --- emulate -----------------------------------------------------------------------------------


def _emulate(arguments: argparse.Namespace) -> int:
    from forewarn.running import run  # noqa: PLC0415 - the other commands need none of it

    options = _options(arguments)
    _log_troubles()
    try:
        return run(lambda: _serve(options, arguments))
    except KeyboardInterrupt:  # where the loop cannot take the signal: Windows
        return OK


def _options(arguments: argparse.Namespace) -> Options:
    from forewarn.emulator.options import METADATA_ADDRESS, Options  # noqa: PLC0415

    delay_s = 0
    if arguments.enable_on_first_request is not None:
        from forewarn.control.forms.fields import Duration  # noqa: PLC0415 - seldom wanted

        delay_s = Duration(0, 120).read(arguments.enable_on_first_request, "the delay")
    operator = arguments.operator_listen
    return Options(
        listen=tuple(arguments.listen) or (METADATA_ADDRESS,),
        operator="" if operator == "none" else operator,
        vms=tuple(dict.fromkeys(arguments.vm)),
        topology=_text_of(arguments.topology) if arguments.topology else "",
        topology_name=arguments.topology or "",
        speed=arguments.speed,
        seed=arguments.seed,
        store=arguments.store,
        enable_on_first_request=arguments.enable_on_first_request is not None,
        enable_delay_s=float(delay_s),
        rate_per_s=arguments.rate_limit,
        proxy_secret=_text_of(arguments.proxy_secret).strip() if arguments.proxy_secret else "",
    )


def _log_troubles() -> None:
    """Have warnings on standard error; what goes well is told by the voice."""
    from forewarn.logs import configure_logs  # noqa: PLC0415

    configure_logs("warning", "text")


async def _serve(options: Options, arguments: argparse.Namespace) -> int:
    from forewarn.emulator.emulator import Emulator  # noqa: PLC0415
    from forewarn.running import run_until_stopped  # noqa: PLC0415

    emulator = Emulator(options)
    for text in arguments.fault:
        from forewarn.emulator.faults import read_fault  # noqa: PLC0415 - seldom wanted

        emulator.faults.set(read_fault(text))
    stories = [_scenario(name) for name in arguments.scenario]
    bound = await emulator.start()
    emulator.faults_changed()
    if not arguments.quiet:
        _speak(emulator)
    for scenario in stories:
        await emulator.run_scenario(scenario)
    assert bound is emulator.bound
    status = await run_until_stopped(emulator, lambda _: None)
    if emulator.failure is not None:
        print(f"forewarn: {emulator.failure}", file=sys.stderr)
    return REFUSED if status else OK


def _scenario(name: str) -> Scenario:
    from forewarn.emulator.scenarios import find_scenario  # noqa: PLC0415 - seldom wanted

    return find_scenario(name)


def _speak(emulator: Emulator) -> None:
    """Greet, and tell each change from now on."""
    from forewarn import civil  # noqa: PLC0415
    from forewarn.emulator.voice import Voice, banner  # noqa: PLC0415

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    assert emulator.bound is not None
    write(banner(emulator.bound, vms=emulator.vms, speed=emulator.pace.speed))
    write("\n")
    voice = Voice(write, lambda: civil.iso8601(emulator.pace.now_ms())[11:19])
    emulator.on_commit = voice.tell
    emulator.say = voice.say


def _text_of(path: str) -> str:
    from pathlib import Path  # noqa: PLC0415 - only where a file is named

    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(path=path, reason=error) from error


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

        text = _text_of(name)
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
