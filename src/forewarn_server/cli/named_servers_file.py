"""The file of contexts: services that a user calls by name, with token and certificate."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from forewarn_base.errors import CallerError


@dataclass(frozen=True, kw_only=True)
class NamedServer:
    """A service, and how to call it."""

    server: str
    token_file: str = ""
    ca: str = ""


@dataclass(frozen=True, kw_only=True)
class NamedServers:
    """The contexts of a user by name, and the name of the current one; empty: none."""

    current: str
    by_name: dict[str, NamedServer]


class NamedServersUnreadable(CallerError):
    """The file of contexts cannot be read or written."""

    code = "contexts-unreadable"
    message = "The contexts in {path} cannot be used: {reason}."
    advice = "Correct or delete the file, and add the contexts with `forewarn context add`."


def path_of_contexts() -> Path:
    """Return the path of the file, in the user's directory for settings."""
    base = os.environ.get("XDG_CONFIG_HOME", "") or Path.home() / ".config"
    return Path(base) / "forewarn" / "contexts.json"


def read_contexts() -> NamedServers:
    """Return the contexts; none if the file does not exist.

    Raises:
        NamedServersUnreadable: the file is malformed or cannot be read.
    """
    path = path_of_contexts()
    try:
        form = json.loads(path.read_text("utf-8"))
        contexts = {name: NamedServer(**each) for name, each in form["contexts"].items()}
        return NamedServers(current=str(form["current"]), by_name=contexts)
    except FileNotFoundError:
        return NamedServers(current="", by_name={})
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "it is malformed"
        raise NamedServersUnreadable(path=path, reason=reason) from error


def write_contexts(contexts: NamedServers) -> None:
    """Write the contexts so that only the user can read them.

    Raises:
        NamedServersUnreadable: the file cannot be written.
    """
    path = path_of_contexts()
    named = {name: asdict(each) for name, each in contexts.by_name.items()}
    text = json.dumps({"current": contexts.current, "contexts": named}, indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(f"{text}\n", "utf-8")
        new.replace(path)
    except OSError as error:
        raise NamedServersUnreadable(path=path, reason=error.strerror) from error
