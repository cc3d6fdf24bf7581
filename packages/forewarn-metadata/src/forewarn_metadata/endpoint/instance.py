"""Instance metadata: answers to `/metadata/instance` and `/metadata/versions`; pure.

Each raised error defines its HTTP status. Source: I-1 to I-4.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence

from forewarn_base.errors import CallerError
from forewarn_metadata.endpoint.http.response import compact
from forewarn_metadata.endpoint.instance_fields import (
    COMPUTE,
    DATA_DISK,
    DEFAULT_RESOURCE_GROUP,
    DEFAULT_SUBSCRIPTION,
    INSTANCE_VERSIONS,
    LISTS,
    SAME_AS,
)
from forewarn_metadata.replication.messages import Caller, Fact

KEYS_PATH = "/home/{user}/.ssh/authorized_keys"
#: Default prefix length of a subnet, as in the public cloud.
SUBNET_PREFIX = 24
#: Prefix length of an IPv6 subnet, the only length in the public cloud.
SUBNET_PREFIX_V6 = 64


class InstancePathUnknown(CallerError):
    """The requested part of the instance's metadata does not exist."""

    code = "instance-path-unknown"
    status = 404
    message = "Not found"
    advice = "Request /metadata/instance for all metadata."


class InstanceFormatInvalid(CallerError):
    """The requested part is not available in this format. Source: I-2."""

    code = "instance-format-invalid"
    message = "Bad request. {reason}"
    advice = "Use format=text for a single value, and format=json for objects and lists."


def versions_body() -> bytes:
    """Return the answer to `/metadata/versions`. Source: I-3."""
    return compact({"apiVersions": list(INSTANCE_VERSIONS)})


def render(caller: Caller, version: str, *, path: str, form: str) -> tuple[bytes, bool]:
    """Return a part of the VM's metadata and whether it is plain text.

    `path` follows `/metadata/instance`; its parts ignore case.

    Raises:
        InstancePathUnknown: the part does not exist.
        InstanceFormatInvalid: a single value requires `format=text`; objects and lists require
        JSON.
    """
    part = _walk(_instance(caller, version), [each for each in path.split("/") if each])
    wanted = form.lower()
    if wanted not in ("", "json", "text"):
        raise InstanceFormatInvalid(reason=f"Unknown format {form!r}.")
    if isinstance(part, str):
        if wanted != "text":
            raise InstanceFormatInvalid(reason="A single value requires format=text.")
        return part.encode("utf-8", "replace"), True
    if wanted != "text":
        return compact(part), False
    return _listing(part).encode("utf-8", "replace"), True


def _instance(caller: Caller, version: str) -> Mapping[str, object]:
    compute = _compute(caller, version)
    shown = _plain({"compute": compute, "network": {"interface": _interfaces(caller)}})
    assert isinstance(shown, dict)
    return shown


def _compute(caller: Caller, version: str) -> dict[str, object]:
    """Return every attribute of the version, with defaults for values that the VM lacks."""
    facts: dict[str, object] = {
        "name": caller.vm,
        "vmId": derived_vm_id(caller.vm),
        **caller.instance,
    }
    facts["resourceId"] = resource_id(
        caller.vm,
        subscription=str(facts.get("subscriptionId", DEFAULT_SUBSCRIPTION)),
        resource_group=str(facts.get("resourceGroupName", DEFAULT_RESOURCE_GROUP)),
        scale_set=str(facts.get("vmScaleSetName", "")),
    )
    facts |= _tags(facts.get("tags"))
    keys = facts.get("publicKeys")
    if isinstance(keys, str):
        facts["publicKeys"] = _public_keys(keys, user=str(facts.get("osProfile.adminUsername", "")))
    disks = facts.get("storageProfile.dataDisks")
    if isinstance(disks, str):
        facts["storageProfile.dataDisks"] = [
            _data_disk(line, version) for line in disks.splitlines()
        ]
    facts.setdefault("osProfile.disablePasswordAuthentication", "true" if keys else "false")
    compute: dict[str, object] = {}
    for name, (since, default) in COMPUTE.items():
        if since <= version:
            _put(compute, name, facts.get(name, facts.get(SAME_AS.get(name, ""), default)))
    for name, since in LISTS.items():
        if since <= version:
            _put(compute, name, facts.get(name) or [])
    return compute


def _put(part: dict[str, object], name: str, value: object) -> None:
    """Set the value of a dotted name."""
    *parents, leaf = name.split(".")
    at = part
    for parent in parents:
        inner = at.setdefault(parent, {})
        if not isinstance(inner, dict):
            return
        at = inner
    at[leaf] = value


def instance_number(scale_set: str, vm: str) -> str:
    """Return the number of a scale-set instance, such as 3 for `web_3`; empty without a number."""
    prefix, separator, number = vm.rpartition("_")
    return number if separator and prefix == scale_set and number.isdecimal() else ""


def derived_vm_id(vm: str) -> str:
    """Return the `vmId` of a VM whose record has none: a GUID that depends only on the VM's name.

    Clients take a VM without an id for one outside Azure. The id is the same at every node and
    after every restart. Source: I-5.
    """
    digits = hashlib.sha256(f"forewarn vm {vm}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}"


def resource_id(vm: str, *, subscription: str, resource_group: str, scale_set: str) -> str:
    """Return the VM's resource id in Azure's tools; for scale-set instances with their number."""
    kind, number = "virtualMachines", instance_number(scale_set, vm) if scale_set else ""
    if number:
        kind = f"virtualMachineScaleSets/{scale_set}/virtualMachines"
    provider = "providers/Microsoft.Compute"
    place = f"/subscriptions/{subscription}/resourceGroups/{resource_group}"
    return f"{place}/{provider}/{kind}/{number or vm}"


def _tags(tags: object) -> dict[str, Fact]:
    """Return both forms of a VM's tags from a mapping of tag names to values."""
    if not isinstance(tags, Mapping):
        return {}
    named = sorted((str(name), str(value)) for name, value in tags.items())
    return {
        "tags": ";".join(f"{name}:{value}" for name, value in named),
        "tagsList": [{"name": name, "value": value} for name, value in named],
    }


def _public_keys(keys: str, *, user: str) -> list[dict[str, str]]:
    """Return the SSH keys, each with its file, from a text with one key per line."""
    path = KEYS_PATH.format(user=user) if user else ""
    return [{"keyData": each, "path": path} for each in keys.splitlines() if each.strip()]


def _data_disk(line: str, version: str) -> dict[str, object]:
    """Return a disk in the form of `DATA_DISKS_PATTERN`, with all attributes of the version."""
    members = dict(word.split("=", 1) for word in line.split(" "))
    disk: dict[str, object] = {}
    for name, (since, default) in DATA_DISK.items():
        if since <= version:
            _put(disk, name, members.get(name, default))
    return disk


def _interfaces(caller: Caller) -> object:
    """Return the VM's configured network interfaces, or one interface with the VM's addresses."""
    fact = caller.instance.get("interface")
    if fact:
        return fact
    v4 = [each for each in caller.addresses if "." in each]
    v4 = v4 or [str(each) for each in (caller.instance.get("privateIpAddress"),) if each]
    v6 = [each for each in caller.addresses if ":" in each]
    subnet = str(caller.instance.get("subnet", ""))
    mac = str(caller.instance.get("macAddress", "")) or _mac_of(v4)
    return [
        {
            "ipv4": {
                "ipAddress": [{"privateIpAddress": each, "publicIpAddress": ""} for each in v4],
                "subnet": [_subnet(subnet or f"{v4[0]}/{SUBNET_PREFIX}")] if v4 else [],
            },
            "ipv6": {
                "ipAddress": [{"privateIpAddress": each, "publicIpAddress": ""} for each in v6],
                "subnet": [_subnet(f"{v6[0]}/{SUBNET_PREFIX_V6}")] if v6 else [],
            },
            "macAddress": "".join(each for each in mac.upper() if each.isalnum()),
        }
    ]


def _mac_of(addresses: list[str]) -> str:
    """Return a locally administered hardware address derived from the first IPv4 address."""
    octets = [int(each) for each in (addresses or ["0.0.0.0"])[0].split(".")]  # noqa: S104 - no host
    return "0242" + "".join(f"{each:02X}" for each in octets)


def _subnet(text: str) -> dict[str, str]:
    """Return a subnet from `ADDRESS/PREFIX`, with the host part cleared."""
    network = ipaddress.ip_network(text, strict=False)
    return {"address": str(network.network_address), "prefix": str(network.prefixlen)}


def _plain(value: object) -> object:
    """Return the value with strings instead of primitives, and with sorted keys. Source: I-4."""
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
    """Return the names in this part, one per line, in the public service's form."""
    if isinstance(part, Mapping):
        inner: list[tuple[str, object]] = list(part.items())
    else:
        assert isinstance(part, list)
        inner = [(str(index), value) for index, value in enumerate(part)]
    return "\n".join(name if isinstance(value, str) else name + "/" for name, value in inner)
