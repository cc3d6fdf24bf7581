"""`scheduledEventsProfile` and `scheduledEventsPolicy`: notice and approval of a group. Pure.

Azure has these settings on VMs and on sets; in Forewarn they belong to the VM's group.
"""

from __future__ import annotations

from typing import Any

from forewarn_azure.json_values import JsonObject, member
from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.validation.durations import iso_duration, read_duration_s
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.values import replace, value
from forewarn_core.fleet.impact import TERMINATE_NOTICE_S_MAX, TERMINATE_NOTICE_S_MIN, Impact
from forewarn_core.fleet.topology import Group

#: The only permitted notice of an image upgrade or reimage. Source: O-2.
OS_IMAGE_NOTICE = "PT15M"

_POLICIES = {Impact.REBOOT: "userInitiatedReboot", Impact.REDEPLOY: "userInitiatedRedeploy"}
_PROFILE, _POLICY = "scheduledEventsProfile", "scheduledEventsPolicy"
_TARGETS = "scheduledEventsAdditionalPublishingTargets"
_ALL_DOWN = (_POLICY, "allInstancesDown", "automaticallyApprove")


@value
class _Switch:
    """A setting with `enable` and a value; it keeps the value while it is off."""

    setting: str
    path: tuple[str, ...]
    #: Name of the member with the value, and its default value.
    name: str
    default: str


_TERMINATE = _Switch(
    "terminate_notice", (_PROFILE, "terminateNotificationProfile"), "notBeforeTimeout", "PT5M"
)
_IMAGE = _Switch(
    "reimage_notice", (_PROFILE, "osImageNotificationProfile"), "notBeforeTimeout", OS_IMAGE_NOTICE
)
_PUBLISHED = _Switch(
    "published",
    (_POLICY, _TARGETS, "eventGridAndResourceGraph"),
    "scheduledEventsApiVersion",
    VERSIONS[-1],
)
_SWITCHES = (_TERMINATE, _IMAGE, _PUBLISHED)
#: The settings of a new group.
_NEW = Group("new")
#: The supported members. Other members are refused, or stored as details. Source: Z-6.
SETTINGS = (
    *((*switch.path, name) for switch in _SWITCHES for name in ("enable", switch.name)),
    *((_POLICY, name, "automaticallyApprove") for name in _POLICIES.values()),
    _ALL_DOWN,
)


def profile_of(group: Group) -> JsonObject:
    """Return the terminate and image notifications of a group."""
    return {switch.path[-1]: _shown(group, switch) for switch in (_TERMINATE, _IMAGE)}


def policy_of(group: Group) -> JsonObject:
    """Return the settings of a group for automatic approval and for Azure's services.

    Source: A-10, Z-6.
    """
    approved: JsonObject = {
        name: {"automaticallyApprove": impact in group.automatic_approval}
        for impact, name in _POLICIES.items()
    }
    return {
        **approved,
        "allInstancesDown": {"automaticallyApprove": group.approves_when_down},
        _TARGETS: {"eventGridAndResourceGraph": _shown(group, _PUBLISHED)},
    }


def _shown(group: Group, switch: _Switch) -> JsonObject:
    """Return whether a setting is on, and its value; without a given value, the default."""
    used = {
        _TERMINATE: group.terminate_notice_s and iso_duration(group.terminate_notice_s),
        _IMAGE: group.reimage_notice and OS_IMAGE_NOTICE,
        _PUBLISHED: group.published,
    }[switch]
    kept = dict(group.switched_off).get(switch.setting, switch.default)
    return {"enable": bool(used), switch.name: used or kept}


def with_settings(
    group: Group,
    profile: Any,  # noqa: ANN401 - JSON
    policy: Any,  # noqa: ANN401 - JSON
    *,
    patch: bool,
) -> Group:
    """Return a group with the settings of a request; None changes nothing.

    Args:
        group: the group before the request.
        profile: the request's `scheduledEventsProfile`.
        policy: the request's `scheduledEventsPolicy`.
        patch: whether a missing `enable` or value stays; otherwise it gets its default.

    Raises:
        ValidationFailed: a member has the wrong type, or its value is not permitted.
    """
    whole = {_PROFILE: profile, _POLICY: policy}
    for switch in _SWITCHES:
        given = member(whole, *switch.path)
        if given is not None:
            group = _switched(group, switch, given, patch=patch)
    approved = set(group.automatic_approval)
    for impact, name in _POLICIES.items():
        given = member(whole, _POLICY, name, "automaticallyApprove")
        if given is not None:
            approved.discard(impact)
            if _truth(given, name):
                approved.add(impact)
    down = member(whole, *_ALL_DOWN)
    if down is not None:
        group = replace(group, approves_when_down=_truth(down, "allInstancesDown"))
    return replace(group, automatic_approval=frozenset(approved))


def _switched(group: Group, switch: _Switch, given: object, *, patch: bool) -> Group:
    """Return the group with a setting on or off; a setting that is off keeps its value. Z-6."""
    where = switch.path[-1]
    if not isinstance(given, dict):
        raise ValidationFailed(where=where, problem="must be an object")
    wanted = _shown(group if patch else _NEW, switch)
    wanted |= {name: each for name, each in given.items() if each is not None}
    enable = _truth(wanted["enable"], f"{where}.enable")
    text, at = str(wanted[switch.name]), f"{where}.{switch.name}"
    if switch is _PUBLISHED:
        if text not in VERSIONS:
            raise ValidationFailed(where=at, problem=f"must be one of {', '.join(VERSIONS)}")
        group = replace(group, published=text if enable else "")
    else:
        notice_s = _notice_s(text, at, fixed=switch is _IMAGE)
        text = iso_duration(notice_s)
        if switch is _IMAGE:
            group = replace(group, reimage_notice=enable)
        else:
            group = replace(group, terminate_notice_s=notice_s if enable else 0)
    if enable or _shown(group, switch)[switch.name] == text:
        return group
    kept = {**dict(group.switched_off), switch.setting: text}
    return replace(group, switched_off=tuple(sorted(kept.items())))


def _notice_s(text: str, where: str, *, fixed: bool) -> int:
    """Return a permitted notice in seconds; a fixed notice is always `OS_IMAGE_NOTICE`."""
    try:
        notice_s = read_duration_s(text)
    except ValueError:
        problem = "must be an ISO 8601 duration such as PT5M"
        raise ValidationFailed(where=where, problem=problem) from None
    if fixed and iso_duration(notice_s) != OS_IMAGE_NOTICE:
        raise ValidationFailed(where=where, problem=f"must be {OS_IMAGE_NOTICE}")
    if not TERMINATE_NOTICE_S_MIN <= notice_s <= TERMINATE_NOTICE_S_MAX:
        raise ValidationFailed(where=where, problem="must be PT5M to PT15M")
    return notice_s


def _truth(given: object, where: str) -> bool:
    if not isinstance(given, bool):
        raise ValidationFailed(where=where, problem="must be true or false")
    return given
