"""`forewarn context`: services by name, so that commands need no --server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError, nearest
from forewarn_base.exit_codes import OK
from forewarn_server.cli.api_client import client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.named_servers_file import (
    NamedServer,
    NamedServers,
    read_contexts,
    write_contexts,
)
from forewarn_server.cli.output import note, show_list
from forewarn_server.cli.parameters import PRINTED, OutputOptions, ServerOptions

context = noun_app("context")
Name: TypeAlias = Annotated[str, Parameter(name="NAME", help="name of the context")]


class NamedServerUnknown(CallerError):
    """No context has this name."""

    code = "context-unknown"
    status = 404
    message = "There is no context {name}."
    advice = "`forewarn context list` shows the names."


@context.default
@context.command(name="list")
def _list(*, printed: OutputOptions = PRINTED) -> int:
    """List the contexts."""
    contexts = read_contexts()
    rows = [
        {"name": name, "current": name == contexts.current, **vars(each)}
        for name, each in sorted(contexts.by_name.items())
    ]
    columns = ("name", "current", "server", "token_file", "ca")
    empty = "No contexts. Add one with `forewarn context add NAME --server URL`."
    return show_list(printed, {"contexts": rows}, columns, name="contexts", empty=empty)


@context.command(name="add")
def _add(
    name: Name,
    /,
    *,
    server: Annotated[str, Parameter(metavar="URL", help="operator API")],
    token_file: Annotated[
        str, Parameter(metavar="FILE", help="file with the bearer token (default: FOREWARN_TOKEN)")
    ] = "",
    ca: Annotated[str, Parameter(metavar="FILE", help="CA certificate of the server")] = "",
) -> int:
    """Add or change a context, and use it if it is the first."""
    client_of(ServerOptions(server=server))  # refuses an address that is none
    contexts = read_contexts()
    files = {"token_file": token_file, "ca": ca}
    absolute = {key: str(Path(file).absolute()) if file else "" for key, file in files.items()}
    by_name = {**contexts.by_name, name: NamedServer(server=server, **absolute)}
    current = contexts.current or name
    write_contexts(NamedServers(current=current, by_name=by_name))
    note(f"context {name} saved{'; it is used now' if current == name else ''}")
    return OK


@context.command(name="use")
def _use(name: Name, /) -> int:
    """Use a context for all commands without --server."""
    write_contexts(replace(_with(name), current=name))
    note(f"context {name} is used now")
    return OK


@context.command(name="remove")
def _remove(name: Name, /) -> int:
    """Remove a context."""
    contexts = _with(name)
    by_name = {key: each for key, each in contexts.by_name.items() if key != name}
    current = "" if contexts.current == name else contexts.current
    write_contexts(NamedServers(current=current, by_name=by_name))
    note(f"context {name} removed")
    return OK


def _with(name: str) -> NamedServers:
    """Return the contexts, one of which has this name."""
    contexts = read_contexts()
    if name not in contexts.by_name:
        raise NamedServerUnknown(name=name, near=nearest(name, contexts.by_name))
    return contexts
