"""`forewarn node run`: a metadata node, one on every hypervisor.

`service/metadata_node.py` implements the node. This module converts options to its settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
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

node = noun_app("node")


@node.command(name="run")
def _run(
    *,
    config: Annotated[
        Sequence[Path],
        Parameter(
            metavar="FILE",
            help="settings (TOML), repeatable: [node], [metadata], [listen] metadata and [log]"
            f" (default: {DEFAULT_CONFIG} if it exists)",
        ),
    ] = (),
    follow: Annotated[
        str | None,
        Parameter(
            metavar="HOST:PORT",
            help="comma-separated addresses of the control planes' feeds",
        ),
    ] = None,
    store: Annotated[
        str | None, Parameter(metavar="DIR", help="directory for the node's copy of the documents")
    ] = None,
    name: Annotated[
        str | None,
        Parameter(metavar="NAME", help="name of this node (default: the machine's name)"),
    ] = None,
    certificate: Annotated[
        str | None, Parameter(metavar="FILE", help="certificate of this node, PEM")
    ] = None,
    key: Annotated[
        str | None, Parameter(metavar="FILE", help="private key of that certificate, PEM")
    ] = None,
    ca: Annotated[
        str | None,
        Parameter(
            metavar="FILE",
            help="CA certificate that signs the certificate of the control plane",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        Parameter(
            metavar="HOST,HOST",
            help="hosts whose VMs the node serves (default: all permitted hosts)",
        ),
    ] = None,
    listen: Annotated[
        list[str] | None,
        Parameter(
            metavar="ADDRESS", help="address for VMs, repeatable (default: 169.254.169.254:80)"
        ),
    ] = None,
    printed: OutputOptions = PRINTED,  # noqa: ARG001 - every command accepts --json
) -> int:
    """Serve the VMs of some hosts, even while the control plane is unreachable."""
    from forewarn_base.log_format import configure_logs  # noqa: PLC0415 - the client side needs it not
    from forewarn_metadata.endpoint.server import new_event_loop  # noqa: PLC0415
    from forewarn_server.service.metadata_node import check_node, run_node  # noqa: PLC0415
    from forewarn_server.service.process import run  # noqa: PLC0415
    from forewarn_server.service.settings_check import check_settings  # noqa: PLC0415
    from forewarn_server.settings_loader import load_settings  # noqa: PLC0415

    settings = _with_options(
        load_settings(settings_files(config)),
        listen or (),
        hosts,
        follow=follow,
        store=store,
        name=name,
        certificate=certificate,
        key=key,
        ca=ca,
    )
    check_settings(settings)
    check_node(settings)
    configure_logs(settings.log.level, settings.log.format)
    status = run(lambda: run_node(settings), new_event_loop)
    if status:
        print("forewarn: the node failed; see its log", file=sys.stderr)
    return status


def _with_options(
    settings: Settings, addresses: Sequence[str], hosts: str | None, **options: str | None
) -> Settings:
    """Return the settings, overridden by values from the command line."""
    typed: dict[str, str | tuple[str, ...]]
    typed = {name: text for name, text in options.items() if text}
    if hosts:
        typed["hosts"] = tuple(host.strip() for host in hosts.split(","))
    listen = settings.listen
    if addresses:
        listen = replace(listen, metadata=tuple(addresses))
    return replace(settings, listen=listen, node=replace(settings.node, **typed))  # type: ignore[arg-type]  # texts and one tuple
