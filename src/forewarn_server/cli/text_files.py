"""Reader of text files named on the command line."""

from __future__ import annotations

from forewarn_base.errors import CallerError

#: Largest scenario or topology file, in bytes.
FILE_BYTES_MAX = 16 * 1024 * 1024


class FileUnreadable(CallerError):
    """A file on the command line cannot be read."""

    code = "file-unreadable"
    message = "{path} cannot be read: {reason}."
    advice = "Name an existing text file."


def text_of(path: str) -> str:
    """Return the text of a file.

    Raises:
        FileUnreadable: the file does not exist, is not text or is too long.
    """
    from pathlib import Path  # noqa: PLC0415 - only where a file is named

    try:
        with Path(path).open("rb") as file:
            octets = file.read(FILE_BYTES_MAX + 1)
        if len(octets) > FILE_BYTES_MAX:
            raise FileUnreadable(
                path=path, reason=f"the file is longer than {FILE_BYTES_MAX} bytes"
            )
        return octets.decode("utf-8")
    except OSError as error:
        raise FileUnreadable(path=path, reason=error.strerror) from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(path=path, reason="the file is not text") from error
