"""Options that select hosts by name, from a file, or by selector.

The service evaluates the selector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_server.cli.text_files import text_of

HostNames: TypeAlias = Annotated[str, Parameter(name="HOST", help="names of hosts")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Selection:
    """Options that select hosts without naming each of them."""

    selector: Annotated[
        str | None,
        Parameter(
            alias="-l",
            metavar="KEY=VALUE,...",
            help="hosts with all of these labels: zone=2,rack=r7",
        ),
    ] = None
    file: Annotated[
        str | None,
        Parameter(metavar="FILE", help="file of host names, separated by white space"),
    ] = None


SELECTION = Selection()


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


def named_hosts(
    names: Sequence[str], selection: Selection, *, every_host: bool = False
) -> list[str]:
    """Return the names of the selected hosts; empty for a selector or for every host.

    Raises:
        HostsUnnamed: no selection of hosts, or several.
        FileUnreadable: the file cannot be read.
        HostsFileEmpty: the file is empty.
    """
    listed = text_of(selection.file).split() if selection.file else list(names)
    if selection.file and not listed:
        raise HostsFileEmpty(path=selection.file)
    ways = (names, selection.selector, selection.file, every_host)
    if sum(map(bool, ways)) != 1:
        raise HostsUnnamed
    return listed
