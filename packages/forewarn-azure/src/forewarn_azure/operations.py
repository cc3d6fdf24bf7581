"""Azure's long-running operations, each for one request for work.

Forewarn stores no record, because the name contains the numbers of our operations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from forewarn_azure.inventory import location_of
from forewarn_azure.json_values import JsonObject
from forewarn_azure.refusals import ArmNotSupported, ArmResourceUnknown
from forewarn_azure.routes import SUBSCRIPTION, ArmCall, ArmResponse, ArmRoutes
from forewarn_base.protocol.timestamps import iso8601
from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.stimulus import TARGETS_MAX, RequestMaintenance
from forewarn_core.fleet.topology import Vm

#: Retry-After for polling clients, in seconds; Azure sends about 10.
RETRY_AFTER_S = 1
_RETRY = {"Retry-After": str(RETRY_AFTER_S)}
_MONITOR = "&monitor=true"

_PATH = SUBSCRIPTION + "/providers/Microsoft.Compute/locations/{location}/operations/{operation}"
#: The count of operations, the tag of their subscription, and the first number.
_NAME = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-4([0-9a-f]{3})-8([0-9a-f]{3})-([0-9a-f]{12})")

#: Azure's names of unsuccessful results.
_ENDS = {
    OperationState.FAILED: ("Failed", "OperationFailed"),
    OperationState.CANCELLED: ("Canceled", "OperationPreempted"),
}
ROUTES = ArmRoutes()


async def begin(
    call: ArmCall, cause: Cause, vms: tuple[Vm, ...], *, routine: str = ""
) -> ArmResponse:
    """Request work on VMs, and return the response with the URL for polling. Source: Z-1.

    With `routine`, a description, the platform does the work: one fault domain after the other.
    """
    names = tuple(vm.name for vm in vms)
    assert names
    for name in names:
        if cause is not Cause.DELETION and call.resources.power.get(name) == "deallocated":
            reason = "the VM is deallocated and has no host; start the VM first"
            raise ArmNotSupported(action=cause.value, name=name, reason=reason)
    request = RequestMaintenance(
        cause=cause,
        targets=names,
        source=Source.PLATFORM if routine else None,
        description=routine or None,
        queue=bool(routine),
    )
    committed = await call.control.submit(request, call.actor)
    ours = [each for each in committed.operations if each.cause is cause and each.of_vm]
    numbers = sorted(each.number for each in ours if each.vms[0] in names)
    assert len(numbers) >= len(names), committed
    tag = _tag(call.path["subscription"])
    number = f"{numbers[-len(names)]:012x}"
    operation = f"{len(names):08x}-{tag[:4]}-4{tag[4:7]}-8{tag[7:]}-{number}"
    place = {"location": location_of(vms[0]), "operation": operation}
    headers = _location(call, {**call.path, **place})
    url = headers["Location"].removesuffix(_MONITOR)
    return ArmResponse(None, 202, {"Azure-AsyncOperation": url, **headers})


@ROUTES.serve(f"GET {_PATH}", "monitor")
async def _poll(call: ArmCall) -> ArmResponse:
    """Poll a long-running operation."""
    operations = await _operations(call)
    over = not any(each.live for each in operations)
    shown = _status(call.path["operation"], operations)
    if call.query.get("monitor") != "true":
        return ArmResponse(shown, 200, {} if over else _RETRY)
    if not over:
        return ArmResponse(None, 202, _location(call, call.path))
    if "error" in shown:
        return ArmResponse({"error": shown["error"]}, 409)
    return ArmResponse()


def _location(call: ArmCall, names: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for the next poll of an operation; `names` are those in its path."""
    path = _PATH.format_map(names)
    return {"Location": f"{call.base}{path}?api-version={call.api_version}{_MONITOR}", **_RETRY}


def _tag(subscription: str) -> str:
    """Return ten digits that tie an operation's name to its subscription, in either case."""
    return hashlib.sha256(subscription.lower().encode()).hexdigest()[:10]


async def _operations(call: ArmCall) -> list[Operation]:
    """Return the operations whose numbers an operation's name contains; O(numbers).

    Under another subscription the operation does not exist, even if its VMs are deleted.
    """
    name = _NAME.fullmatch(call.path["operation"].lower())
    count = int(name[1], 16) if name else 0
    if name is None or not 1 <= count <= TARGETS_MAX:
        raise _gone(call)
    if name[2] + name[3] + name[4] != _tag(call.path["subscription"]):
        raise _gone(call)
    first = int(name[5], 16)
    numbers = range(first, first + count)
    live = await call.control.read(
        lambda plane: {n: plane.state.operations[n] for n in numbers if n in plane.state.operations}
    )
    missing = [number for number in numbers if number not in live]
    if missing:
        stored = await call.control.look_up(lambda store: [store.operation(n) for n in missing])
        live.update({each.number: each for each in stored if each is not None})
    if len(live) != count:
        raise _gone(call)
    return [live[number] for number in numbers]


def _gone(call: ArmCall) -> ArmResourceUnknown:
    return ArmResourceUnknown(
        kind="Microsoft.Compute/locations/operations",
        name=call.path["operation"][:64],
        resource_group="",
    )


def _status(name: str, operations: list[Operation]) -> JsonObject:
    """Return the combined status of operations, in the form of `Azure-AsyncOperation`."""
    shown: JsonObject = {"name": name, "startTime": iso8601(min(o.created_ms for o in operations))}
    if any(each.live for each in operations):
        return shown | {"status": "InProgress"}
    shown["endTime"] = iso8601(max(each.ended_ms or 0 for each in operations))
    for state, (status, code) in _ENDS.items():
        ended = [each for each in operations if each.state is state]
        if ended:
            words = "; ".join(f"{o.target}: {o.reason or state.value}" for o in ended[:5])
            return shown | {"status": status, "error": {"code": code, "message": words}}
    return shown | {"status": "Succeeded"}
