"""Options that select hosts by name, from a file, or by selector.

The service evaluates the selector.
"""

from __future__ import annotations

import argparse

from forewarn.cli.parsing import Parser
from forewarn.cli.text_files import text_of
from forewarn.errors import CallerError


class HostsUnnamed(CallerError):
    """Hosts are not selected, or selected in several ways."""

    code = "hosts-unnamed"
    message = (
        "Select hosts with exactly one of NAME..., --selector, --file and, for a maintenance, "
        "--all."
    )
    advice = "`forewarn host list` shows the names."


class HostsFileEmpty(CallerError):
    """The file of host names is empty; the program that writes it probably failed."""

    code = "hosts-file-empty"
    message = "{path} names no host."
    advice = "Write host names into the file, separated by white space."


def add_host_selection(parser: Parser) -> None:
    """Add names, `--selector` and `--file`."""
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.option("--selector KEY=VALUE,...", "hosts with all of these labels: zone=2,rack=r7")
    parser.option("--file FILE", "file of host names, separated by white space")


def named_hosts(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the selected hosts; empty for a selector, or `--all` of a maintenance.

    Raises:
        HostsUnnamed: no selection of hosts, or several.
        FileUnreadable: the file cannot be read.
        HostsFileEmpty: the file is empty.
    """
    names = text_of(arguments.file).split() if arguments.file else list(arguments.names)
    if arguments.file and not names:
        raise HostsFileEmpty(path=arguments.file)
    ways = (arguments.names, arguments.selector, arguments.file, getattr(arguments, "all", False))
    if sum(map(bool, ways)) != 1:
        raise HostsUnnamed
    return names
