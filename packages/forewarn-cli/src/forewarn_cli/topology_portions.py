"""Upload of a large topology in several requests.

Each part contains some VMs with their hosts and groups. The server checks each part separately and
applies it atomically.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

from forewarn_base.validation.complexity import FileTooComplex
from forewarn_base.validation.json_reader import without_doubles
from forewarn_base.values import value
from forewarn_server.cli.api_client import ApiClient, ApiRefused
from forewarn_server.cli.listing import records
from forewarn_server.cli.progress import part_bar

if TYPE_CHECKING:
    Fleet: TypeAlias = dict[str, dict[str, dict[str, Any]]]

#: Largest file sent in one request, in bytes; also the server's default limit.
WHOLE_BYTES_MAX = 2 * 1024 * 1024
#: Most VMs in a part, or hosts or groups without VMs: about 1.5 MB.
PORTION = 5000
#: Most records removed by one request: 100 names of maximum length fill 13 KB of its URL.
REMOVED = 100
_KINDS = ("hosts", "groups", "vms")
_NOWHERE = {"zone": "", "rack": ""}


class TopologyFileUnreadable(Exception):
    """A malformed file, with the reason."""


@value
class Portions:
    """A topology to send: the whole file, or the parsed fleet, which can be divided into parts."""

    body: bytes
    media: str
    fleet: Fleet | None = None


def portions_of(body: bytes, media: str) -> Portions:
    """Prepare a topology for sending.

    Raises:
        FileUnreadable: the file is large and cannot be parsed here.
    """
    if len(body) <= WHOLE_BYTES_MAX:
        return Portions(body, media)
    try:
        fleet = _read(body, media)
    except (ValueError, RecursionError) as error:
        raise TopologyFileUnreadable(str(error).replace("\n", " ")[:200]) from error
    except (ImportError, FileTooComplex) as error:
        raise TopologyFileUnreadable("the file is too large for YAML; use JSON or TOML") from error
    return Portions(
        body, media, fleet if _is_fleet(fleet) else None
    )  # the server reports the reason for a malformed file


def apply_portions(
    client: ApiClient, portions: Portions, query: Mapping[str, str]
) -> dict[str, Any]:
    """Send a topology with query parameters, and return the changes of all parts as one answer.

    Raises:
        FileUnreadable: the server cannot parse the topology.
    """
    if portions.fleet is None:
        return _send(client, portions.body, portions.media, query)
    changes: dict[str, dict[tuple[str, str], dict[str, str]]] = {
        v: {} for v in ("added", "changed", "removed")
    }
    applied = "dry_run" not in query
    each_asked = {name: text for name, text in query.items() if name != "prune"}
    for answer in _answers(client, portions.fleet, each_asked):
        for verb, known in changes.items():
            known.update(((each["kind"], each["name"]), each) for each in answer[verb])
    if "prune" in query:
        for kind, gone in _missing(client, portions.fleet).items():
            changes["removed"].update(((kind, each["name"]), each) for each in gone)
            if applied:
                _remove(client, f"{kind}s", [each["name"] for each in gone])
    shown = {verb: [*known.values()] for verb, known in changes.items()}
    return {**shown, "applied": applied}


def _answers(client: ApiClient, fleet: Fleet, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Send the parts one after another, and yield the changes of each part.

    While the server applies a part, the client encodes the next and decodes the last answer.
    """
    parts = list(divided(fleet))
    text = "each part is applied completely or refused"
    with ThreadPoolExecutor(1) as pool, part_bar(text, len(parts)) as end_step:
        working: Future[dict[str, Any]] | None = None
        for part in parts:
            body = json.dumps(part).encode()
            answer = working.result() if working else None
            working = pool.submit(_send, client, body, "application/json", query)
            if answer is not None:
                end_step()
                yield answer
        if working is not None:
            yield working.result()
            end_step()


def divided(fleet: Fleet) -> Iterator[Fleet]:
    """Yield independent parts: VMs with their hosts and groups, then records without VMs."""
    hosts, groups = fleet.get("hosts", {}), fleet.get("groups", {})
    used_hosts: set[str] = set()
    used_groups: set[str] = set()
    for batch in _batches(fleet.get("vms", {})):
        own_hosts = {str(each.get("host")) for each in batch.values()}
        own_groups = {str(each.get("group")) for each in batch.values()}
        own_groups |= (
            batch.keys() & groups.keys()
        )  # a VM without a group belongs to the group of the same name
        used_hosts |= own_hosts
        used_groups |= own_groups
        yield {
            "hosts": _select(hosts, own_hosts),
            "groups": _select(groups, own_groups),
            "vms": batch,
        }
    for batch in _batches({name: form for name, form in hosts.items() if name not in used_hosts}):
        yield {"hosts": batch}
    for batch in _batches({name: form for name, form in groups.items() if name not in used_groups}):
        yield {"groups": batch}


def _select(records: dict[str, dict[str, Any]], names: set[str]) -> dict[str, dict[str, Any]]:
    return {name: records[name] for name in sorted(names & records.keys())}


def _batches(records: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    rest = iter(records.items())
    while batch := dict(islice(rest, PORTION)):
        yield batch


def _is_fleet(read: Any) -> bool:  # noqa: ANN401 - whatever the file says
    return (
        isinstance(read, dict)
        and set(read) <= set(_KINDS)
        and all(isinstance(records, dict) for records in read.values())
        and all(isinstance(form, dict) for records in read.values() for form in records.values())
    )


def _read(body: bytes, media: str) -> Any:  # noqa: ANN401 - whatever the file says
    if media == "application/json":
        return json.loads(body, object_pairs_hook=without_doubles)
    if media == "application/toml":
        return tomllib.loads(body.decode())
    from forewarn_server.yaml_reader import read_yaml  # noqa: PLC0415 - [server] only

    return read_yaml(body.decode())


def _send(client: ApiClient, body: bytes, media: str, query: Mapping[str, str]) -> dict[str, Any]:
    path = f"/v1/topology?{urlencode(query)}" if query else "/v1/topology"
    answer: dict[str, Any] = json.loads(put_file(client, path, body, media=media))
    return answer


def put_file(client: ApiClient, path: str, body: bytes, *, media: str) -> bytes:
    """Send a topology file, and return the answer.

    Raises:
        FileUnreadable: the server cannot parse the file.
    """
    try:
        return client.send("PUT", path, body=body, kind=media)
    except ApiRefused as refusal:
        if refusal.code != "body-unreadable":
            raise
        reason = str(refusal).partition(": ")[2].removesuffix(".")
        raise TopologyFileUnreadable(reason) from refusal


def _missing(client: ApiClient, fleet: Fleet) -> dict[str, list[dict[str, str]]]:
    """Return the server's records that the file does not have, by kind: VMs, groups, hosts."""
    groups = set(fleet.get("groups", {}))
    groups |= {each.get("group", name) for name, each in fleet.get("vms", {}).items()}
    known = {"host": fleet.get("hosts", {}), "group": groups, "vm": fleet.get("vms", {})}
    places: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    missing: dict[str, list[dict[str, str]]] = {"vm": [], "group": [], "host": []}
    for kind in ("host", "group", "vm"):
        for each in records(client, f"/v1/{kind}s", f"{kind}s"):
            name = each["name"]
            if kind == "host":
                places[name] = {"zone": each["zone"], "rack": each["labels"].get("rack", "")}
            elif kind == "group":
                owners[name] = each["owner"]
            if name not in known[kind]:
                host = {"host": name, "vm": each.get("host", "")}.get(kind, "")
                group = {"group": name, "vm": each.get("group", "")}.get(kind, "")
                place = {**places.get(host, _NOWHERE), "owner": owners.get(group, "")}
                missing[kind].append({"kind": kind, "name": name, **place})
    return missing


def _remove(client: ApiClient, kind: str, names: list[str]) -> None:
    for start in range(0, len(names), REMOVED):
        query = urlencode({"name": ",".join(names[start : start + REMOVED])})
        client.delete(f"/v1/{kind}?{query}")
