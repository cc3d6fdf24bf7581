"""Instance metadata next door: `/metadata/instance` and the list of versions; pure.

No HTTP status may be chosen in here but by raising; no event and no document. Source: I-1 to I-4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forewarn.errors import CallerError
from forewarn.metadata.http.response import compact

if TYPE_CHECKING:
    from forewarn.replication.messages import Caller

INSTANCE_VERSIONS = (
    *("2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01"),
    *("2018-02-01", "2018-04-02", "2018-10-01"),
    *("2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04"),
    *("2019-08-01", "2019-08-15", "2019-11-01"),
    *("2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01"),
    *("2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-10-01"),
    *("2021-11-01", "2021-11-15", "2021-12-13"),
    *("2023-07-01", "2023-11-15"),
    *("2024-03-15", "2024-07-17", "2024-10-01", "2025-04-07"),
)
"""The api-versions of instance metadata, ascending: 35 of them. Source: I-3."""

_COMPUTE_SINCE = {
    **dict.fromkeys(
        (
            *("location", "name", "offer", "osType", "platformFaultDomain"),
            *("platformUpdateDomain", "publisher", "sku", "version", "vmId", "vmSize"),
        ),
        "2017-03-01",
    ),
    **dict.fromkeys(
        ("placementGroupId", "resourceGroupName", "subscriptionId", "tags"), "2017-08-01"
    ),
    **dict.fromkeys(("vmScaleSetName", "zone"), "2017-12-01"),
    "provider": "2018-10-01",
    "azEnvironment": "2018-10-01",
    "customData": "2019-02-01",
    "resourceId": "2019-03-11",
    "tagsList": "2019-06-04",
    "isHostCompatibilityLayerVm": "2020-06-01",
    "licenseType": "2020-09-01",
    "evictionPolicy": "2020-12-01",
    "priority": "2020-12-01",
    "userData": "2021-01-01",
    "extendedLocation": "2021-03-01",
    "hostGroup": "2021-11-15",
    "host": "2021-11-15",
    "physicalZone": "2023-11-15",
}
"""Attribute of `compute` -> first version with it."""

PATH_PARTS_MAX = 16


class InstancePathUnknown(CallerError):
    """There is no such part of the instance's metadata."""

    code = "instance-path-unknown"
    status = 404
    message = "Not found"
    advice = "Ask for /metadata/instance to see all there is."


class InstanceFormatInvalid(CallerError):
    """The part asked for cannot be given in this format. Source: I-2."""

    code = "instance-format-invalid"
    message = "Bad request. {reason}"
    advice = "Use format=text for a single value and format=json for everything else."


def versions_body() -> bytes:
    """Return what `/metadata/versions` shows. Source: I-3."""
    return compact({"apiVersions": list(INSTANCE_VERSIONS)})


def render(caller: Caller, version: str, *, path: str, form: str) -> tuple[bytes, bool]:
    """Return a part of the VM's metadata and whether it is plain text.

    Args:
        caller: The VM that asks.
        version: One of `INSTANCE_VERSIONS`.
        path: What follows `/metadata/instance`, in its own case; the parts match without.
        form: The `format` of the query; empty where none was given.

    Raises:
        InstancePathUnknown: there is no such part.
        InstanceFormatInvalid: a leaf without `format=text`, or more than a leaf with it.
    """
    part = _walk(_instance(caller, version), [each for each in path.split("/") if each])
    wanted = form.lower()
    if wanted not in ("", "json", "text"):
        raise InstanceFormatInvalid(reason=f"Unknown format {form!r}.")
    if isinstance(part, str):
        if wanted != "text":
            raise InstanceFormatInvalid(reason="A single value is given with format=text only.")
        return part.encode("utf-8", "replace"), True
    if wanted != "text":
        return compact(part), False
    return _listing(part).encode("utf-8", "replace"), True


def _instance(caller: Caller, version: str) -> Mapping[str, object]:
    facts = caller.instance
    compute: dict[str, object] = {}
    for name, since in _COMPUTE_SINCE.items():
        if since <= version:
            compute[name] = facts.get(name, "")
    compute["name"] = facts.get("name", caller.vm)
    tags = facts.get("tags")
    if isinstance(tags, Mapping):
        named = sorted((str(name), str(value)) for name, value in tags.items())
        if "tags" in compute:
            compute["tags"] = ";".join(f"{name}:{value}" for name, value in named)
        if "tagsList" in compute:
            compute["tagsList"] = [{"name": name, "value": value} for name, value in named]
    elif "tagsList" in compute and not facts.get("tagsList"):
        compute["tagsList"] = []
    shown = _plain({"compute": compute, "network": {"interface": _interfaces(caller)}})
    assert isinstance(shown, dict)
    return shown


def _interfaces(caller: Caller) -> object:
    """Return the network interfaces given as facts, or one made from the VM's addresses."""
    given = caller.instance.get("interface")
    if given:
        return given
    v4 = [
        {"privateIpAddress": each, "publicIpAddress": ""}
        for each in caller.addresses
        if "." in each
    ]
    v6 = [{"privateIpAddress": each} for each in caller.addresses if ":" in each]
    mac = str(caller.instance.get("macAddress", ""))
    return [{"ipv4": {"ipAddress": v4, "subnet": []}, "ipv6": {"ipAddress": v6}, "macAddress": mac}]


def _plain(value: object) -> object:
    """Return the value with every primitive as a string, keys in order. Source: I-4."""
    root: dict[str, object] = {"": value}
    todo: list[tuple[dict[str, object] | list[object], str | int]] = [(root, "")]
    while todo:
        holder, at = todo.pop()
        each = holder[at]  # type: ignore[index]  # a key of a mapping, or an index
        if isinstance(each, Mapping):
            named = {str(name): each[name] for name in sorted(each, key=str)}
            todo.extend((named, name) for name in named)
            holder[at] = named  # type: ignore[index]
        elif isinstance(each, Sequence) and not isinstance(each, str):
            listed = list(each)
            todo.extend((listed, index) for index in range(len(listed)))
            holder[at] = listed  # type: ignore[index]
        else:
            holder[at] = _text_of(each)  # type: ignore[index]
    return root[""]


def _text_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _walk(root: Mapping[str, object], parts: list[str]) -> object:
    if len(parts) > PATH_PARTS_MAX:
        raise InstancePathUnknown
    part: object = root
    for name in parts:
        if isinstance(part, Mapping):
            matches = [key for key in part if key.lower() == name.lower()]
            if not matches:
                raise InstancePathUnknown
            part = part[matches[0]]
        elif isinstance(part, list) and name.isascii() and name.isdigit() and len(name) < 5:
            if int(name) >= len(part):
                raise InstancePathUnknown
            part = part[int(name)]
        else:
            raise InstancePathUnknown
    return part


def _listing(part: object) -> str:
    """Return the names below this part, one a line, as the public service lists them."""
    if isinstance(part, Mapping):
        inner: list[tuple[str, object]] = list(part.items())
    else:
        assert isinstance(part, list)
        inner = [(str(index), value) for index, value in enumerate(part)]
    return "\n".join(name if isinstance(value, str) else name + "/" for name, value in inner)
