"""`forewarn serve`: run the service.

`daemon.py` assembles the service. This module reads settings and returns exit statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import DEFAULT_CONFIG
from forewarn_server.cli.parameters import (
    PRINTED,
    OutputOptions,
    settings_files,
)

if TYPE_CHECKING:
    from forewarn_base.settings import Settings

serve = noun_app("serve")


@serve.default
def _run(
    *,
    config: Annotated[
        Sequence[Path],
        Parameter(
            metavar="FILE",
            help="settings (TOML), repeatable; also reads FILE.d/*.toml of each"
            f" (default: {DEFAULT_CONFIG} if it exists)",
        ),
    ] = (),
    workers: Annotated[
        int | None,
        Parameter(
            metavar="N", help="number of metadata worker processes (default: [listen] workers)"
        ),
    ] = None,
    check: Annotated[bool, Parameter(help="check all requirements of a start, then exit")] = False,
    printed: OutputOptions = PRINTED,
) -> int:
    """Run the service."""
    from dataclasses import replace  # noqa: PLC0415 - the client side starts without all this

    from forewarn_base.log_format import configure_logs  # noqa: PLC0415
    from forewarn_server.service.process import run  # noqa: PLC0415
    from forewarn_server.service.settings_check import check_settings  # noqa: PLC0415
    from forewarn_server.settings_loader import load_settings  # noqa: PLC0415

    files = settings_files(config)
    settings = load_settings(files)
    if workers is not None:
        settings = replace(settings, listen=replace(settings.listen, workers=workers))
    check_settings(settings)

    def read_again() -> Settings:
        again = load_settings(files)
        return replace(again, listen=settings.listen) if workers is not None else again

    configure_logs(settings.log.level, settings.log.format)
    if check:
        return _check(settings, as_json=printed.structured)
    return run(lambda: _serve(settings, read_again))


def _check(settings: Settings, *, as_json: bool) -> int:
    import asyncio  # noqa: PLC0415 - the client side starts without all this

    from forewarn_server.cli.output import note, print_json  # noqa: PLC0415
    from forewarn_server.service.settings_check import warnings_of  # noqa: PLC0415
    from forewarn_server.service.start_check import check_start  # noqa: PLC0415

    notes = asyncio.run(check_start(settings))
    warnings = warnings_of(settings)
    for kind, sentences in (("note", notes), ("warning", warnings)):
        for sentence in sentences:
            note(f"{kind}: {sentence}")
    note("settings valid")
    if as_json:
        print_json({"sound": True, "warnings": warnings, "notes": notes})
    return 0


async def _serve(settings: Settings, read_again: Callable[[], Settings]) -> int:
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415
    from functools import partial  # noqa: PLC0415

    from forewarn_base.clock import SystemClock  # noqa: PLC0415
    from forewarn_base.ids import Ids  # noqa: PLC0415
    from forewarn_server.service.daemon import Daemon  # noqa: PLC0415
    from forewarn_server.service.hooks import ServiceHooks  # noqa: PLC0415
    from forewarn_server.service.parts import BoundAddresses  # noqa: PLC0415
    from forewarn_server.service.process import (  # noqa: PLC0415
        keep_watchdog,
        notify,
        run_until_stopped,
        start_unless_stopped,
    )
    from forewarn_server.service.reload import Reload  # noqa: PLC0415
    from forewarn_server.service.settings_check import warnings_of  # noqa: PLC0415

    log = logging.getLogger("forewarn")

    def started(bound: BoundAddresses) -> None:
        places = {
            "VMs": ", ".join(bound.metadata),
            "metadata nodes": daemon.node_feed.address,
            "operators": bound.operator,
            "users of this machine": daemon.operators.local_address,
            "Azure's tools": bound.azure,
        }
        for whom, place in places.items():
            if place:
                log.info("serving %s at %s", whom, place, extra={"action": "started"})
        for warning in warnings_of(settings):
            log.warning("%s", warning, extra={"action": "settings.doubtful"})
        alone = not (daemon.control.has_principals or settings.operator.open_on_loopback)
        if alone and bound.operator:
            place = daemon.operators.local_address or "unix:PATH"
            log.warning(
                "No principal has access yet. Create the first token on this machine:"
                " forewarn access token create NAME --role admin --server %s",
                place,
                extra={"action": "access.none"},
            )

    def show_standby(address: str) -> None:
        notify("READY=1\nSTATUS=standby")  # the service manager limits the time of a start
        if address:
            log.info("serving operators at %s as a follower", address, extra={"action": "standby"})

    hooks = ServiceHooks(on_standby=show_standby, reload=partial(Reload, read=read_again))
    daemon = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
    watchdog = asyncio.create_task(keep_watchdog(daemon))
    status = 0
    if await start_unless_stopped(daemon):
        status = await run_until_stopped(daemon, started)
    watchdog.cancel()
    if daemon.failure:
        log.error("%s %s", daemon.failure, daemon.failure.advice_text())
    log.info("stopped", extra={"action": "stopped"})
    return status
