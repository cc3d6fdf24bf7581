"""Images in history: the changed columns of a record as JSON, compressed if long.

`history.Rows` distinguishes complete rows from partial ones. This module completes the rows of new
hosts, groups and VMs.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from forewarn_core.fleet.records import KINDS, Columns
from forewarn_core.fleet.state import Entry, Image
from forewarn_store.engine import Row

_Told: TypeAlias = tuple[str, str | int, Columns | None]

#: Longest text that is stored uncompressed, in bytes; compression hardly shortens short texts.
PLAIN_MAX = 120

#: Longest uncompressed text for new hosts, groups and VMs, in bytes.
#:
#: A fleet has millions of these short images. Compressing 200 bytes saves a quarter, and takes four
#: times as long as writing.
PLAIN_ADDED_MAX = 240

#: Compression level of zlib, its default; level 9 would save one per cent more.
LEVEL = 6

#: zlib's dictionary: the most frequent parts of images. An image can be read only with the
#: dictionary of its writer. Never change this dictionary; add another dictionary instead.
_WORDS = (
    b'"cause":"live-migration","cause":"host-update","cause":"network-update","cause":"redeploy",'
    b'"cause":"eviction","cause":"deletion","cause":"reimage","cause":"hardware-failure",'
    b'[["vm","",{"name":"","host":"","group":"","size":"","gpu":0,"spot":0,"addresses":"[\\"10.0.0.'
    b'\\"]","interface":"","instance_id":"","vm_id":"","os_type":"Linux","location":"","resource_group'
    b'":"","subscription":"","tags":"[]"}]][["host","",{"name":"","fault_domain":0,"update_domain":0,'
    b'"zone":"","driver":"","health":"healthy"}]][["group","",{"name":"","kind":"availability-set",'
    b'"owner":"","fault_domain_count":2,"strict_approval":0,"automatic_approval":"[]","terminate_'
    b'notice_s":0,"reimage_notice":0}]][["enrolment","",{"group":"","enabled_ms":17,"polled_ms":17}],'
    b'["document","",{"key":"","group":"","document":"{\\"DocumentIncarnation\\":1,\\"Events\\":[]}"}]]'
    b'[["operation",1,{"number":1,"request":1,"cause":"host-reboot","impact":"Reboot","source":"Platform'
    b'","routine":1,"host":"","vms":"[\\"\\", \\"","of_vm":0,"description":"","duration_s":-1,'
    b'"notice_s"'
    b':900,"silent":0,"state":"planned","requested_start_ms":17,"not_before_ms":0,"created_ms":0,"announced_ms":0'
    b',"shown_ms":0,"started_ms":0,"begun_ms":0,"ended_ms":0,"attempt":0,"reason":"","alert":"none",'
    b'"destination":"","actor":"operator","events":"[]","abort_owed":0,"driver":""}]]'
    b'[["~operation",1,{"state":"succeeded","ended_ms":17}],["~event","","{"state":"completed"}],'
    b'["~operation",1,{"state":"running","started_ms":17,"attempt":1}],["~event","",{"state":"started"'
    b'}],["~document","",{"document":"{\\"DocumentIncarnation\\":2,\\"Events\\":[{\\"EventId\\":\\"'
    b'\\",\\"EventStatus\\":\\"Started\\",\\"EventType\\":\\"Reboot\\",\\"ResourceType\\":\\"'
    b'VirtualMachine\\",\\"Resources\\":[\\"\\",\\"NotBefore\\":\\"\\",\\"Description\\":\\"\\",\\"'
    b'EventSource\\":\\"Platform\\",\\"DurationInSeconds\\":-1}]}"}]]'
    b'[["~operation",1,{"state":"announced","not_before_ms":17,"announced_ms":17,"events":"[\\"'
    b'"]}],["event","",{"id":"","operation":1,"group":"","resources":"[\\"\\"]","state":"scheduled",'
    b'"approved_by":"[]"}],[["~event","",{"state":"approved","approved_by":"[\\"'
)

#: Kinds that version 0.1 does not know. Their images have a column of their own, which that version
#: does not read: it follows and replays commits of this version without them (H-8). They are always
#: complete, because that version may delete history and write a checkpoint without them. A later
#: version adds its own kinds here; `read_later_images` leaves out kinds that this version does not
#: know.
LATER_KINDS = frozenset({"choice", "deferral", "ticket"})

#: Kind -> column with its key.
_KEY = "name"
#: The image of a new record omits its key and these common values. These values are part of the
#: format. When `records` gets a new column, add the column with the value that older images imply.
#: Never change the other values.
_COMMON: dict[str, Columns] = {
    "host": {
        "fault_domain": 0,
        "update_domain": 0,
        "zone": "",
        "driver": "",
        "health": "healthy",
        "labels": "[]",
        "memory_mib": 0,
    },
    "group": {
        "kind": "availability-set",
        "owner": "",
        "fault_domain_count": 0,
        "strict_approval": 0,
        "automatic_approval": "[]",
        "terminate_notice_s": 0,
        "reimage_notice": 0,
        "approves_when_down": 1,
        "published": "2020-07-01",
        "switched_off": "[]",
        "keep_apart": "[]",
        "keep_together": "[]",
    },
    "vm": {
        "host": "",
        "group": "",
        "size": "",
        "gpu": 0,
        "spot": 0,
        "addresses": "[]",
        "interface": "",
        "instance_id": "",
        "vm_id": "",
        "os_type": "Linux",
        "location": "",
        "resource_group": "",
        "subscription": "",
        "tags": "[]",
        "instance": "[]",
        "memory_mib": 0,
    },
}

_json = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(list[tuple[str, str | int, dict[str, str | int] | None]]).decode


def images_text(images: Iterable[Image]) -> str:
    """Return images in the form that history stores."""
    text = b"[" + b",".join([_encode(image) for image in images]) + b"]"
    if len(text) <= (PLAIN_ADDED_MAX if text.startswith(b'[["+') else PLAIN_MAX):
        return text.decode()
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15, zdict=_WORDS)
    return base64.b64encode(packer.compress(text) + packer.flush()).decode("ascii")


def _encode(image: Image) -> bytes:
    """Encode an image as JSON: `+` before the kind marks a new record, `~` a changed record.

    Images without a prefix contain the complete row, or no row.
    """
    kind, row = image.kind, image.row
    if image.changed is not None and kind not in LATER_KINDS:
        return _json((f"~{kind}", image.key, image.changed))
    common = _COMMON.get(kind)
    if (
        row is None or common is None or len(row) != len(common) + 1
    ):  # a partial row of an older record
        return _json((kind, image.key, row))
    short = {name: each for name, each in row.items() if common.get(name) != each}
    del short[_KEY]
    return _json((f"+{kind}", image.key, short))


def history_rows(entries: Iterable[Entry], first_seq: int) -> list[Row]:
    """Return the rows of entries; the first has the sequence number `first_seq`."""
    return [
        (
            seq,
            entry.at_ms,
            entry.actor,
            entry.action,
            entry.text,
            entry.operation,
            entry.event,
            entry.group,
            entry.vm,
            entry.host,
            *image_columns(entry.images),
        )
        for seq, entry in enumerate(entries, start=first_seq)
    ]


def image_columns(images: Sequence[Image]) -> tuple[str, str]:
    """Return the two columns of images: kinds that version 0.1 knows, and the others."""
    later = [each for each in images if each.kind in LATER_KINDS]
    if not later:
        return images_text(images), "[]"
    basic = [each for each in images if each.kind not in LATER_KINDS]
    return images_text(basic), images_text(later)


def read_columns(images: str, later_images: str) -> list[_Told]:
    """Return kind, key and row of each image of both columns, as `read_images`.

    Raises:
        ValueError: a text is malformed.
    """
    basic = read_images(images)
    if later_images == "[]":
        return basic
    return basic + [each for each in read_images(later_images) if each[0] in KINDS]


def read_images(text: str) -> list[_Told]:
    """Return kind, key and row of each image; for an existing record, the row has only changes.

    Raises:
        ValueError: the text is malformed.
    """
    if text.startswith("["):
        rows = _read(text)
    else:
        unpacker = zlib.decompressobj(-15, zdict=_WORDS)
        try:
            rows = _read(unpacker.decompress(base64.b64decode(text, validate=True)))
        except zlib.error as error:
            raise ValueError(str(error)) from error
    return [_read_image(kind, key, row) for kind, key, row in rows]


def _read_image(kind: str, key: str | int, row: Columns | None) -> _Told:
    if row is not None and kind[0] == "+":
        kind = kind[1:]
        if kind not in _COMMON:
            raise ValueError(f"an image of a new {kind} must be complete")
        row = {_KEY: key, **_COMMON[kind], **row}
    return kind.removeprefix("~"), key, row
