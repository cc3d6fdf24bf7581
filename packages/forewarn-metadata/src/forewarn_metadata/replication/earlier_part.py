"""Reads the file of a node that followed the feed of version 0.1, so that an upgrade shows it.

Each line is an array: a start, then portions of changes. Source: M-2, H-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from forewarn_metadata.replication.feed_state import FeedState
from forewarn_metadata.replication.feed_tag import FeedTag
from forewarn_metadata.replication.messages import (
    Caller,
    DocumentChange,
    NodePart,
    Publication,
    encoded,
    read_part,
)

#: Name of the file in the node's directory.
FILE = "feed"

_EVENT_FIELDS = (
    "event_id",
    "status",
    "event_type",
    "resource_type",
    "resources",
    "not_before_ms",
    "description",
    "source",
    "duration_s",
)


def read_earlier_part(lines: Iterable[bytes]) -> tuple[FeedTag, NodePart]:
    """Return a node's part, and a tag without a digest.

    Raises:
        OSError, ValueError, TypeError, FeedUnreadable: the file is damaged.
    """
    state, tag = FeedState(), FeedTag()
    change: tuple[list[Caller], list[str], list[Publication]] = [], [], []
    for line in lines:
        if not line.endswith(b"\n"):
            break
        row: list[Any] = json.loads(line)
        kind, values = row[0], row[1:]
        if kind == "start":
            tag = FeedTag(values[0], values[1], "", values[4] if len(values) > 4 else "")
        elif kind == "portion":
            sequence, is_last, _, (callers, gone, publications), *_ = values
            part = _part_of(callers, publications)
            change[0].extend(part.vms)
            change[1].extend(gone)
            change[2].extend(part.documents)
            if is_last:
                vms, names, documents = change
                state.apply(
                    DocumentChange(
                        sequence,
                        callers=tuple(vms),
                        gone=tuple(names),
                        publications=tuple(documents),
                    )
                )
                tag, change = tag._replace(sequence=sequence), ([], [], [])
    if not tag.epoch:
        raise ValueError("it has no start")
    return tag, NodePart(tuple(state.callers.values()), tuple(state.publications.values()))


def _part_of(callers: list[list[Any]], publications: list[list[Any]]) -> NodePart:
    """Return records, whose fields were values of an array."""
    vms = [dict(zip(Caller.__struct_fields__, row, strict=False)) for row in callers]
    documents = []
    for view, enabled, (incarnation, rows) in publications:
        events = [dict(zip(_EVENT_FIELDS, row, strict=False)) for row in rows]
        document = {"incarnation": incarnation, "events": events}
        documents.append({"view": view, "enabled": enabled, "document": document})
    return read_part(encoded({"vms": vms, "documents": documents}))
