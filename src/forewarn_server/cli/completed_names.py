"""Words that complete the value of an argument: names from the server, and files."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn_base.errors import CallerError, ForewarnError, nearest
from forewarn_server.cli.output import note

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from forewarn_server.cli.parameters import ServerOptions

#: Longest wait for the server at a key press, in seconds.
ANSWER_TIMEOUT_S = 2.0
#: Most names that complete a word.
NAMES_MAX = 500
#: Placeholders of files.
_FILES = frozenset({"FILE", "NAME|FILE", "PATH"})
#: Placeholder or option, or a noun whose NAME or ID is completed -> list and its naming member.
_LISTS = {
    "HOST": ("hosts", "name"),
    "--host": ("hosts", "name"),
    "--vm": ("vms", "name"),
    "VM": ("vms", "name"),
    "--group": ("groups", "name"),
    "--owner": ("groups", "owner"),
    "host": ("hosts", "name"),
    "vm": ("vms", "name"),
    "group": ("groups", "name"),
    "operation": ("operations", "id"),
    "event": ("events", "id"),
    "maintenance": ("maintenances", "id"),
    "declaration": ("declarations", "id"),
    "deferral": ("deferrals", "declaration"),
    "wait": ("operations", "id"),
    "ticket": ("tickets", "id"),
    "confirmation": ("confirmations", "id"),
    "outbox": ("destinations", "name"),
}
#: Kinds of names in sentences.
_LISTS |= {"owner": ("groups", "owner"), "zone": ("hosts", "zone")}
#: Parts of sentences about an unknown name.
_UNKNOWN = re.compile(
    r"(?:There is no|has VMs of|has no|be changed:) (host|group|VM|owner) ([^\s.:]+)"
)
#: The beginning of a sentence about an invalid member of a request, and one that is missing.
_MEMBER = re.compile(r"(?:the body\.)?(?:[a-z_]+\[\d+\]\.)?([a-z][a-z_]*)(?:\[\d+\])?(?= must )")
_LACKS = re.compile(r"the body lacks the member '([a-z_]+)'\.")
#: Member of a request -> names of its argument, where they differ.
_ARGUMENTS = {
    "hosts": ("HOST",),
    "targets": ("HOST", "VM", "NAME"),
    "host": ("HOST",),
    "vm": ("VM",),
    "name": ("NAME",),
}
_PATHS = {"destinations": "outbox"}


def words_for(noun: str, action: str, context: CompletionContext) -> list[str]:
    """Return the words that may complete the value of an argument of a command."""
    argument = context.argument
    place = argument.parameter.metavar or argument.name
    if place in _FILES:
        return _files(context.incomplete)
    kept = next((each for each in (*argument.names, place) if each in _LISTS), "")
    if not kept and place in {"NAME", "ID"} and argument.name == place and action != "add":
        kept = noun
    if noun == "context" and place == "NAME" and action != "add":
        return _contexts()
    return _names(*_LISTS[kept]) if kept in _LISTS else []


def with_suggestion(refusal: CallerError, common: ServerOptions) -> CallerError:
    """Return the refusal of an unknown name, with the name that was probably meant."""
    match = _UNKNOWN.search(str(refusal))
    near = near_name(match[1].lower(), match[2], common) if match else ""
    if not near:
        return refusal
    return reworded(refusal, advice=f"Did you mean {near}? {refusal.advice_text()}")


def reworded(refusal: CallerError, *, message: str = "", advice: str = "") -> CallerError:
    """Return a refusal with another sentence or advice; empty: its own."""
    from forewarn_server.cli.api_client import ApiRefused  # noqa: PLC0415 - only after a mistake

    changed = ApiRefused(
        status=refusal.status,
        code=refusal.code,
        message=message or str(refusal),
        advice=advice or refusal.advice_text(),
    )
    changed.__cause__ = refusal
    return changed


def in_options(refusal: CallerError, names: Sequence[str]) -> CallerError:
    """Return the refusal of an invalid value, with the option instead of the member of the request.

    `names` are the names of the options and arguments of the command.
    """
    if refusal.code != "validation-failed":
        return refusal
    text = str(refusal)
    if match := _LACKS.fullmatch(text):
        option = _option(match[1], names)
        return reworded(refusal, message=f"{option} is missing.") if option else refusal
    match = _MEMBER.match(text)
    option = _option(match[1], names) if match else ""
    if not (match and option):
        return refusal
    return reworded(refusal, message=f"{option}{text[match.end() :]}")


def _option(member: str, names: Sequence[str]) -> str:
    """Return the option or argument for a member of a request; empty: none."""
    word = member.replace("_", "-")
    forms = (f"--{word}", f"--{word.removesuffix('s')}", *_ARGUMENTS.get(member, ()))
    return next((each for each in (*forms, member.upper()) if each in names), "")


def near_name(kind: str, name: str, common: ServerOptions) -> str:
    """Return the host, group, VM, owner or zone that a name probably means; empty: none, or it."""
    known = _names(*_LISTS[kind], common)
    return "" if name in known else nearest(name, known)


def suggest_owner(owner: str | None, common: ServerOptions) -> None:
    """Print the owner that an option means, after an answer without records of the owner."""
    near = near_name("owner", owner, common) if owner else ""
    if near:
        note(f"There is no owner {owner}; did you mean {near}?")


def _files(beginning: str) -> list[str]:
    paths = glob.iglob(f"{glob.escape(beginning)}*")  # noqa: PTH207 - a path of any form
    return sorted(f"{name}/" if Path(name).is_dir() else name for name in paths)


def _contexts() -> list[str]:
    from forewarn_server.cli.named_servers_file import read_contexts  # noqa: PLC0415 - few words need it

    try:
        return sorted(read_contexts().by_name)
    except ForewarnError:  # a key press prints no error
        return []


def _names(plural: str, member: str, common: ServerOptions | None = None) -> list[str]:
    from forewarn_server.cli.api_client import client_of  # noqa: PLC0415 - few words need the server
    from forewarn_server.cli.parameters import COMMON  # noqa: PLC0415 - the same

    try:
        client = client_of(common or COMMON)
        client.timeout_s = ANSWER_TIMEOUT_S
        answer = client.get(f"/v1/{_PATHS.get(plural, plural)}", limit=NAMES_MAX)
    except ForewarnError:  # a key press prints no error
        return []
    return list(dict.fromkeys(str(each[member]) for each in answer[plural]))
