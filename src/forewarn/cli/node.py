"""`forewarn node run`: a metadata node, one on every hypervisor.

`service/metadata_node.py` implements the node. This module converts options to its settings.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from forewarn.cli.parsing import DEFAULT_CONFIG, CommandGroup, add_config_option, settings_files

if TYPE_CHECKING:
    from forewarn.settings import Settings

#: Options for settings of `[node]`: name, placeholder, help.
_OPTIONS = (
    (
        "follow",
        "HOST:PORT",
        "comma-separated addresses of the control planes' feeds",
    ),
    ("store", "DIR", "directory for the node's copy of the documents"),
    ("name", "NAME", "name of this node (default: the machine's name)"),
    ("certificate", "FILE", "certificate of this node, PEM"),
    ("key", "FILE", "private key of that certificate, PEM"),
    (
        "ca",
        "FILE",
        "CA certificate that signs the certificate of the control plane",
    ),
)


def add_commands(commands: CommandGroup) -> None:
    """Add `node`."""
    node = commands.group("node", default="")
    parser = node.command(
        "run",
        "serve the VMs of some hosts, even while the control plane is unreachable",
        run=_run,
        remote=False,
        answers=False,
    )
    add_config_option(
        parser,
        "settings (TOML), repeatable: [node], [metadata], [listen] metadata and [log]"
        f" (default: {DEFAULT_CONFIG} if it exists)",
    )
    for name, placeholder, text in _OPTIONS:
        parser.option(f"--{name} {placeholder}", text)
    parser.option(
        "--hosts HOST,HOST", "hosts whose VMs the node serves (default: all permitted hosts)"
    )
    parser.option(
        "--listen ADDRESS",
        "address for VMs, repeatable (default: 169.254.169.254:80)",
        action="append",
    )


def _run(arguments: argparse.Namespace) -> int:
    """Run a metadata node; return its exit status."""
    from forewarn.log_format import configure_logs  # noqa: PLC0415 - the client side needs it not
    from forewarn.metadata.server import new_event_loop  # noqa: PLC0415
    from forewarn.service.metadata_node import check_node, run_node  # noqa: PLC0415
    from forewarn.service.process import run  # noqa: PLC0415
    from forewarn.service.settings_check import check_settings  # noqa: PLC0415
    from forewarn.settings_loader import load_settings  # noqa: PLC0415

    settings = _with_options(load_settings(settings_files(arguments)), arguments)
    check_settings(settings)
    check_node(settings)
    configure_logs(settings.log.level, settings.log.format)
    status = run(lambda: run_node(settings), new_event_loop)
    if status:
        print("forewarn: the node failed; see its log", file=sys.stderr)
    return status


def _with_options(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """Return the settings, overridden by values from the command line."""
    typed: dict[str, str | tuple[str, ...]] = {
        name: getattr(arguments, name) for name, _, _ in _OPTIONS if getattr(arguments, name)
    }
    if arguments.hosts:
        typed["hosts"] = tuple(host.strip() for host in arguments.hosts.split(","))
    listen = settings.listen
    if arguments.listen:
        listen = replace(listen, metadata=tuple(arguments.listen))
    return replace(settings, listen=listen, node=replace(settings.node, **typed))  # type: ignore[arg-type]  # texts and one tuple
