"""`forewarn history export`: write history as JSON lines, with the changed records.

The export leaves history unchanged. The settings in `[history]` limit its size.
"""

from __future__ import annotations

import gzip
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from forewarn.cli.api_client import client_of
from forewarn.cli.parsing import HISTORY_FILTERS
from forewarn.errors import CallerError
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


class ExportUnwritable(CallerError):
    """The export file cannot be written."""

    code = "export-unwritable"
    message = "The export cannot be written to {path}: {reason}."
    advice = "Name a writable file with --output."


#: Entries per request of an export; an answer with the changed records has about 300 KB.
EXPORT_PAGE = 1000


def export_history(arguments: argparse.Namespace) -> int:
    """Write history as JSON lines, one page at a time."""
    client = client_of(arguments)
    filters = {name: word for name in HISTORY_FILTERS if (word := getattr(arguments, name, None))}
    after: int | None = arguments.after or 0
    count = 0
    with _export_file(arguments.output) as file:
        while after is not None:
            page = client.get(
                "/v1/history", after=after, limit=EXPORT_PAGE, images="true", **filters
            )
            for each in page["entries"]:
                file.write(json.dumps(each, separators=(",", ":")) + "\n")
            count += len(page["entries"])
            after = page["next"]
    if arguments.output != "-":
        print(f"{count} entries written to {arguments.output}", file=sys.stderr)
    return OK


@contextmanager
def _export_file(output: str) -> Iterator[TextIO]:
    """Open the output file of an export, or standard output."""
    if output == "-":
        yield sys.stdout
        return
    opener = gzip.open if output.endswith(".gz") else open
    try:
        with opener(output, "wt", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise ExportUnwritable(path=output, reason=error.strerror) from error
