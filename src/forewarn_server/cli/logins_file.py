"""The file of logins: the issuer's token of a user for each server."""

from __future__ import annotations

import json
from pathlib import Path

from forewarn_base.errors import CallerError
from forewarn_server.cli.named_servers_file import path_of_contexts


class LoginsUnreadable(CallerError):
    """The file of logins cannot be read or written."""

    code = "logins-unreadable"
    message = "The logins in {path} cannot be used: {reason}."
    advice = "Correct or delete the file, and sign in again with `forewarn login`."


def path_of_logins() -> Path:
    """Return the path of the file, beside that of the contexts."""
    return path_of_contexts().with_name("logins.json")


def read_logins() -> dict[str, str]:
    """Return the tokens by server; none if the file does not exist.

    Raises:
        LoginsUnreadable: the file is malformed or cannot be read.
    """
    path = path_of_logins()
    try:
        return {str(server): str(token) for server, token in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "it is malformed"
        raise LoginsUnreadable(path=path, reason=reason) from error


def write_logins(logins: dict[str, str]) -> None:
    """Write the tokens so that only the user can read them.

    Raises:
        LoginsUnreadable: the file cannot be written.
    """
    path = path_of_logins()
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(json.dumps(logins, indent=2) + "\n", "utf-8")
        new.replace(path)
    except OSError as error:
        raise LoginsUnreadable(path=path, reason=error.strerror) from error
