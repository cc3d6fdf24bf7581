"""`forewarn emulator run`, or `forewarn emulate`: run an emulator in the foreground.

`emulator.py` assembles the emulator.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter, Token

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.garbage import uncollected
from forewarn_base.host_port import host_of_header
from forewarn_base.values import replace
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import FAULT_HELP
from forewarn_server.cli.parameters import PRINTED, Int, Number, OutputOptions
from forewarn_server.cli.program_name import typed_name
from forewarn_server.cli.text_files import text_of

if TYPE_CHECKING:
    from forewarn_base.settings import Settings
    from forewarn_base.validation.fields import ValueType
    from forewarn_emulator.emulator import Emulator
    from forewarn_emulator.options import Options

#: Settings that the emulator shares with the service.
ENVIRONMENT = ("FOREWARN_METADATA_", "FOREWARN_OPERATOR_TOKENS")
#: A burst may have as many requests as `--rate-limit` allows in this time. The service is more
#: lenient; the emulator shows clients what the public cloud documents.
RATE_LIMIT_BURST_S = 2.0
BURST_MAX = 1_000_000


class OptionInvalid(CallerError):
    """An option of `forewarn emulate` is invalid."""

    code = "option-invalid"
    message = "{problem}"
    advice = "See `forewarn emulate --help`."


#: Default of `--azure` without a value.
AZURE_ADDRESS = "127.0.0.1:8472"
#: Default of `--rate-limit` without a value.
RATE_LIMIT_PER_S = 5.0


def _rate(_: object, tokens: Sequence[Token]) -> float:
    """Return requests per second."""
    text = tokens[0].value
    try:
        rate_per_s = float(text)
    except ValueError:
        rate_per_s = 0.0
    if not 0.0 < rate_per_s < 1e9:
        raise ValueError(f"{text!r} must be a rate above 0")
    return rate_per_s


Rate: TypeAlias = Annotated[float, Parameter(converter=_rate)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EmulatorOptions:
    """Options of an emulator."""

    listen: Annotated[
        Sequence[str],
        Parameter(
            metavar="ADDRESS",
            help="address for VMs: IPV4:PORT, localhost:PORT, [IPV6]:PORT or unix:PATH;"
            " repeatable (default 127.0.0.1:8169)",
        ),
    ] = ()
    operator_listen: Annotated[
        str,
        Parameter(
            metavar="ADDRESS",
            help="address of the operator API (default: 127.0.0.1:8470); `none`: no operator API",
        ),
    ] = "127.0.0.1:8470"
    vm: Annotated[
        Sequence[str],
        Parameter(
            metavar="NAME[=ADDRESS]",
            help="a VM and its source address; repeatable, all in one group; requests from other"
            " addresses count as the first VM's (default: vm-1)",
        ),
    ] = ()
    topology: Annotated[
        str | None,
        Parameter(metavar="FILE", help="file of hosts, groups and VMs (TOML, YAML or JSON)"),
    ] = None
    scenario: Annotated[
        Sequence[str],
        Parameter(metavar="NAME|FILE", help="run a scenario from the start; repeatable"),
    ] = ()
    speed: Annotated[
        Number, Parameter(metavar="N", help="emulated seconds per real second (default 1)")
    ] = 1.0
    seed: Annotated[
        Int | None,
        Parameter(metavar="N", help="seed for reproducible event ids and random choices"),
    ] = None
    store: Annotated[
        str, Parameter(metavar="PATH", help="store the state in a file (default: memory)")
    ] = ""
    azure: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=(0, 1),
            metavar="ADDRESS",
            help="also serve Azure Resource Manager, and print how to configure `az` and the SDK"
            " (default ADDRESS: 127.0.0.1:8472)",
        ),
    ] = None
    fault: Annotated[
        Sequence[str],
        Parameter(
            metavar="KIND[=ARG]", help=f"inject a fault from the start; repeatable; {FAULT_HELP}"
        ),
    ] = ()
    enable_on_first_request: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=(0, 1),
            metavar="DELAY",
            help="enable a group at its first request, as the public cloud does, and delay the"
            " first answer by DELAY",
        ),
    ] = None
    rate_limit: Annotated[
        list[Rate] | None,
        Parameter(
            consume_multiple=(0, 1),
            metavar="N",
            help="at most N requests a second for each VM, in bursts of up to twice as many"
            " (default N: 5; without the option, no limit)",
        ),
    ] = None
    started_for: Annotated[
        str | None,
        Parameter(
            metavar="DURATION",
            help="events are Started for at least this long, as in the public cloud, where ten"
            " minutes are typical for an interruption of seven seconds (default: as long as"
            " the interruption)",
        ),
    ] = None
    max_user_operations: Annotated[
        Int,
        Parameter(
            metavar="N",
            help="at most N user-initiated operations scheduled at a time (default: no limit)",
        ),
    ] = 0
    gone_vm: Annotated[
        Literal["404", "hang", "refuse"],
        Parameter(
            help="response to an evicted or deleted VM (default: hang, as nobody is left to"
            " ask); `refuse` resets the connection"
        ),
    ] = "hang"
    allow_host: Annotated[
        Sequence[str],
        Parameter(
            metavar="NAME",
            help="domain name by which clients may address the metadata service, such as that of"
            " this machine; repeatable. Addresses and names without a dot are always"
            " accepted",
        ),
    ] = ()
    proxy_secret: Annotated[
        str | None,
        Parameter(
            metavar="FILE",
            help="file with the secret that proxies on this machine use to sign X-Instance-ID",
        ),
    ] = None
    preview: Annotated[bool, Parameter(help="serve the preview api-version 2024-07-09, too")] = (
        False
    )
    post_without_header: Annotated[
        bool,
        Parameter(help="accept approvals with api-versions of 2017 without the Metadata header"),
    ] = False
    compat: Annotated[
        bool,
        Parameter(
            help="compatibility with old clients of the public service: --post-without-header"
        ),
    ] = False
    scheduledevents_unknown_version_status: Annotated[
        Literal[400, 404] | None,
        Parameter(help="response to an unknown api-version of Scheduled Events (default: 404)"),
    ] = None
    instance_unknown_version_status: Annotated[
        Literal[400, 404] | None,
        Parameter(help="response to an unknown api-version of instance metadata (default: 400)"),
    ] = None
    quiet: Annotated[bool, Parameter(help="print only problems")] = False


OPTIONS = EmulatorOptions()
emulate = noun_app("emulate")


@emulate.default
def run_emulator(*, options: EmulatorOptions = OPTIONS, printed: OutputOptions = PRINTED) -> int:
    """Run a metadata service on this machine, for trials and tests."""
    with uncollected():
        from forewarn_server.service.process import run  # noqa: PLC0415 - the other commands need none of it

        emulator_options = _options(options)
    _log_troubles(to_console=not options.quiet)
    try:
        return run(lambda: _serve(emulator_options, options, as_json=printed.structured))
    except KeyboardInterrupt:  # on Windows, where the loop cannot handle signals
        return OK


def _options(typed: EmulatorOptions) -> Options:
    from forewarn_emulator.options import METADATA_ADDRESS, Options  # noqa: PLC0415

    operator = typed.operator_listen
    names, addresses = _vms_of(typed.vm)
    surrounding = _surrounding()
    return Options(
        listen=tuple(typed.listen) or (METADATA_ADDRESS,),
        operator="" if operator == "none" else operator,
        azure="" if typed.azure is None else [*typed.azure, AZURE_ADDRESS][0],
        vms=names,
        addresses=addresses,
        topology=text_of(typed.topology) if typed.topology else "",
        topology_name=typed.topology or "",
        speed=typed.speed,
        seed=typed.seed,
        store=typed.store,
        enable_on_first_request=typed.enable_on_first_request is not None,
        metadata=replace(surrounding.metadata, **_metadata_of(typed)),
        gone_vm=typed.gone_vm,
        started_for_s=_started_for_s(typed.started_for),
        max_user_operations=_limit(typed.max_user_operations),
    )


def _metadata_of(typed: EmulatorOptions) -> dict[str, object]:
    """Return the settings of the metadata service from the options."""
    given: dict[str, object] = {}
    for name in ("scheduledevents_unknown_version_status", "instance_unknown_version_status"):
        if getattr(typed, name) is not None:
            given[name] = getattr(typed, name)
    if typed.preview:
        given["preview"] = True
    if typed.compat or typed.post_without_header:
        given["post_without_header"] = True
    if typed.enable_on_first_request:
        from forewarn_base.validation.fields import Duration  # noqa: PLC0415 - seldom wanted

        where = "The delay of --enable-on-first-request"
        given["enable_delay_s"] = _read(Duration(0, 120), typed.enable_on_first_request[0], where)
    if typed.rate_limit is not None:
        rate_per_s = [*typed.rate_limit, RATE_LIMIT_PER_S][0]
        burst = min(max(round(RATE_LIMIT_BURST_S * rate_per_s), 1), BURST_MAX)
        given.update(rate_per_s=rate_per_s, rate_burst=burst)
    if typed.allow_host:
        given["allowed_hosts"] = tuple(map(host_of_header, typed.allow_host))
    if typed.proxy_secret:
        secret = text_of(typed.proxy_secret).strip()
        given.update(proxy_secret=secret, proxy_addresses=("127.0.0.1", "::1", "unix"))
    return given


def _vms_of(given: Sequence[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the names of the VMs in order, and the addresses of each VM."""
    addresses: dict[str, tuple[str, ...]] = {}
    for word in given:
        name, equals, address = word.partition("=")
        if name in addresses and not equals:
            raise OptionInvalid(problem=f"--vm names {name} twice.")
        known = addresses.setdefault(name, ())
        if equals:
            from forewarn_base.validation.fields import IpAddress  # noqa: PLC0415 - seldom wanted

            where = f"The address of {name} with --vm"
            addresses[name] = (*known, str(_read(IpAddress(), address, where)))
    return tuple(addresses), addresses


def _started_for_s(text: str | None) -> int:
    if text is None:
        return 0
    from forewarn_base.validation.fields import Duration  # noqa: PLC0415 - the same
    from forewarn_core.fleet.impact import DURATION_S_MAX  # noqa: PLC0415 - seldom wanted

    started_for_s = _read(Duration(0, DURATION_S_MAX), text, "The time of --started-for")
    assert isinstance(started_for_s, int), started_for_s
    return started_for_s


def _limit(count: int) -> int:
    if count < 0:
        raise OptionInvalid(problem=f"--max-user-operations must be 0 or more, not {count}.")
    return count


def _read(kind: ValueType, text: str, where: str) -> object:
    """Parse the value of an option; errors name the option."""
    from forewarn_base.validation.fields import ValidationFailed  # noqa: PLC0415 - seldom wanted

    try:
        return kind.read(text, where)
    except ValidationFailed as error:
        raise OptionInvalid(problem=str(error)) from error


def _surrounding() -> Settings:
    """Return the settings from the environment."""
    from forewarn_base.settings import Settings  # noqa: PLC0415
    from forewarn_emulator.options import METADATA  # noqa: PLC0415

    defaults = Settings(metadata=METADATA)
    own = {name: text for name, text in os.environ.items() if name.startswith(ENVIRONMENT)}
    if not own:
        return defaults
    from forewarn_server.service.settings_check import check_settings  # noqa: PLC0415 - seldom wanted
    from forewarn_server.settings_loader import load_settings  # noqa: PLC0415 - slow to import

    settings = load_settings((), own, defaults)
    check_settings(settings)
    return settings


def _log_troubles(*, to_console: bool) -> None:
    """Log errors to standard error, and also alerts unless the console prints alerts."""
    import logging  # noqa: PLC0415

    from forewarn_base.log_format import configure_logs  # noqa: PLC0415

    configure_logs("warning", "text")
    if to_console:
        for name in ("forewarn.control", "forewarn.store"):  # the loggers warn about a new store
            logging.getLogger(name).setLevel(logging.ERROR)


async def _serve(options: Options, typed: EmulatorOptions, *, as_json: bool) -> int:
    with uncollected():  # objects of modules stay alive until the process ends
        from forewarn_emulator.launch import new_emulator  # noqa: PLC0415
        from forewarn_emulator.line_writer import LineWriter  # noqa: PLC0415
        from forewarn_server.service.process import run_until_stopped  # noqa: PLC0415

    emulator = new_emulator(options)
    for text in typed.fault:
        from forewarn_emulator.faults import read_fault  # noqa: PLC0415 - seldom wanted

        emulator.faults.set(read_fault(text))
    stories = []
    if typed.scenario:
        from forewarn_emulator.scenario_files import find_scenario  # noqa: PLC0415 - seldom wanted

        stories = [find_scenario(name) for name in typed.scenario]
    await emulator.start()
    with contextlib.ExitStack() as spoken:
        try:
            emulator.faults_changed()
            if not typed.quiet:
                writer = LineWriter(sys.stdout)
                spoken.callback(writer.close)
                _attach_console(emulator, writer.write, as_json=as_json)
            for scenario in stories:
                await emulator.run_scenario(scenario)
        except BaseException:
            await emulator.stop()
            raise
        status = await run_until_stopped(emulator, lambda _: None)
    if emulator.failure is not None:
        print(f"forewarn: {emulator.failure}", file=sys.stderr)
    return REFUSED if status else OK


def _attach_console(emulator: Emulator, write: Callable[[str], None], *, as_json: bool) -> None:
    """Print the banner, then each change of the fleet."""
    from forewarn_base.protocol import timestamps  # noqa: PLC0415
    from forewarn_emulator import console  # noqa: PLC0415

    def now() -> str:
        return timestamps.iso8601(emulator.pace.now_ms())

    assert emulator.bound is not None
    vms, speed = emulator.vms, emulator.pace.speed
    if as_json:
        import json  # noqa: PLC0415 - only then

        write(json.dumps(console.greeting(emulator.bound, vms=vms, speed=speed)) + "\n")
        speaker = console.Console(
            lambda text: write(json.dumps({"at": now(), "text": text}) + "\n")
        )
    else:
        banner = console.banner(emulator.bound, vms=vms, speed=speed, program=typed_name())
        write(banner + "\n")
        dated = console.Dated(emulator.pace.now_ms())
        speaker = console.Console(lambda text: write(dated.lines(text, emulator.pace.now_ms())))
    emulator.attach(speaker)
