"""Hosts named on the command line: one by one, in a file, or by what they have in common.

Nothing is asked of the service in here: a selector is its business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.text_files import text_of
from forewarn.errors import CallerError

if TYPE_CHECKING:
    import argparse


class HostsUnnamed(CallerError):
    """Work on no hosts, or on hosts named in two ways."""

    code = "hosts-unnamed"
    message = "Name the hosts in one way: NAME..., --selector, --file, or for a maintenance --all."
    advice = "`forewarn host list` shows their names."


class HostsFileEmpty(CallerError):
    """A file of hosts that names none: most likely what wrote it has failed."""

    code = "hosts-file-empty"
    message = "{path} names no host."
    advice = "Write names into it, separated by white space."


def add_host_selection(parser: argparse.ArgumentParser) -> None:
    """Add names, `--selector` and `--file`."""
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument(
        "--selector", metavar="KEY=VALUE,...", help="hosts with all of these: zone=2,rack=r7"
    )
    parser.add_argument("--file", metavar="FILE", help="a file of names, separated by white space")


def named_hosts(arguments: argparse.Namespace) -> list[str]:
    """Return the hosts that are named; none where a selector says which.

    Raises:
        HostsUnnamed: it is not said which hosts, or in two ways.
    """
    ways = (arguments.names, arguments.selector, arguments.file)
    if sum(map(bool, ways)) != 1:
        raise HostsUnnamed
    return hosts_in(arguments.file) if arguments.file else list(arguments.names)


def hosts_in(path: str) -> list[str]:
    """Return the hosts that a file names.

    Raises:
        FileUnreadable: it cannot be read.
        HostsFileEmpty: it names none.
    """
    names = text_of(path).split()
    if not names:
        raise HostsFileEmpty(path=path)
    return names
