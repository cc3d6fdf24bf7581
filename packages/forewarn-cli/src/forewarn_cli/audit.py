"""`forewarn audit`: list, export and verify the audit records.

The client checks the hash chain, so that a compromised service cannot hide a manipulation.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from forewarn_base.audit_chain import CallRecord, first_fault, head_of, read_record, signature_of
from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_server.cli.api_client import Answer, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.listing import records
from forewarn_server.cli.output import note, print_json_line, print_structured, show_list
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    Limit,
    ListOptions,
    ServerOptions,
)

audit = noun_app("audit")


#: Audit records per request.
PAGE = 10_000
_DIGEST = re.compile("[0-9a-f]{64}")


class AuditUnreadable(CallerError):
    """An audit export, head or key cannot be read."""

    code = "audit-unreadable"
    message = "{what} cannot be read: {reason}."
    advice = "Use a file from `forewarn audit export`, and write the head as SEQUENCE:DIGEST."


@audit.default
@audit.command(name="list")
def _list(
    *,
    limit: Limit = 50,
    common: ListOptions = LISTED,
) -> int:
    """List the newest changes and refusals."""
    client = client_of(common)
    answer = client.get("/v1/audit", limit=min(limit, PAGE))
    newest = answer["records"]
    if limit > PAGE and newest:
        start = max(0, newest[-1]["sequence"] - limit)
        answer = {"records": list(records(client, "/v1/audit", "records", start=start, limit=PAGE))}
    columns = ("sequence", "at", "principal", "token", "address", "request", "outcome")
    return show_list(common, answer, columns, name="records", empty="No audit records.")


@audit.command(name="export")
def _export(
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Print all records as JSON lines."""
    for each in _server_records(common):
        print_json_line(each)
    return OK


@audit.command(name="verify")
def _verify(
    *,
    file: Annotated[
        Sequence[str] | None,
        Parameter(
            metavar="FILE",
            help="verify exported files instead of the service; repeat for each file, oldest first",
        ),
    ] = None,
    head: Annotated[
        Sequence[str],
        Parameter(
            metavar="SEQUENCE:DIGEST",
            help="SEQUENCE:DIGEST of a record, from a copy outside the service; repeatable",
        ),
    ] = (),
    key_file: Annotated[
        str | None,
        Parameter(metavar="FILE", help="file with the key of [audit], to check signatures"),
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Check that no record was changed, removed or moved."""
    heads = dict(map(_head, head))
    key = b""
    if key_file:
        try:
            key = Path(key_file).read_bytes().strip()
        except OSError as error:
            raise AuditUnreadable(what=key_file, reason=error.strerror) from error
    last: Answer = {"sequence": 0, "digest": ""}
    forged, began = 0, 1

    def checked() -> Iterator[tuple[int, CallRecord, str]]:
        nonlocal last, forged, began
        files = chain.from_iterable(map(_from_file, file or ()))
        for each in files if file else _server_records(common):
            began = began if last["sequence"] else each["sequence"]
            last = each
            if key and each["signature"] != signature_of(key, each["sequence"], each["digest"]):
                forged = forged or each["sequence"]
            yield each["sequence"], read_record(each), each["digest"]

    wrong, reason = first_fault(checked(), heads, signed=bool(key))
    if not wrong and forged:
        wrong, reason = forged, "is not signed by this key"
    if common.structured:
        print_structured(
            common, {"sound": not wrong, "sequence": wrong or last["sequence"], "reason": reason}
        )
    elif wrong:
        print(f"record {wrong} {reason}")
    else:
        newest = head_of(last["sequence"], last["digest"])
        first = f" from {began} on; exports contain earlier records" if began > 1 else ""
        print(f"{last['sequence'] + 1 - began} records intact{first}; head {newest}")
    if not wrong and not (key or heads):
        note(
            "to detect a chain that was rewritten completely, or whose first records were removed, "
            "give --head or --key-file"
        )
    return REFUSED if wrong else OK


def _server_records(common: ServerOptions) -> Iterator[Answer]:
    return records(client_of(common), "/v1/audit", "records", start=0, limit=PAGE)


def _from_file(path: str) -> Iterator[Answer]:
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AuditUnreadable(what=path, reason=reason) from error


def _head(text: str) -> tuple[int, str]:
    sequence, colon, digest = text.partition(":")
    if not (colon and sequence.isdecimal() and _DIGEST.fullmatch(digest)):
        raise AuditUnreadable(
            what=f"The head {text[:80]}", reason="the text is not SEQUENCE:DIGEST"
        )
    return int(sequence), digest
