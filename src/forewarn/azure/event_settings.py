"""`scheduledEventsProfile` and `scheduledEventsPolicy`: notice and approval of a group. Pure.

Azure has these settings on VMs and on sets; in Forewarn they belong to the VM's group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.azure.json_values import member
from forewarn.core.impact import Impact
from forewarn.core.topology import Group
from forewarn.protocol.versions import VERSIONS
from forewarn.validation.durations import iso_duration, read_duration_s
from forewarn.validation.fields import ValidationFailed
from forewarn.values import replace

if TYPE_CHECKING:
    from typing import Any

    from forewarn.azure.json_values import JsonObject

#: Azure's default: the shortest terminate notification.
_TERMINATE_DEFAULT = "PT5M"
#: The only permitted notice of an image upgrade or reimage. Source: O-2.
OS_IMAGE_NOTICE = "PT15M"

_POLICIES = {
    Impact.REBOOT: "userInitiatedReboot",
    Impact.REDEPLOY: "userInitiatedRedeploy",
}
_PROFILES = ("terminateNotificationProfile", "osImageNotificationProfile")
_ALL_DOWN = ("scheduledEventsPolicy", "allInstancesDown", "automaticallyApprove")
_TARGETS = (
    "scheduledEventsPolicy",
    "scheduledEventsAdditionalPublishingTargets",
    "eventGridAndResourceGraph",
)
_ENABLE, _VERSION = (*_TARGETS, "enable"), (*_TARGETS, "scheduledEventsApiVersion")
#: The supported members. Other members are refused, or stored as details. Source: Z-6.
SETTINGS = (
    *(
        ("scheduledEventsProfile", profile, name)
        for profile in _PROFILES
        for name in ("enable", "notBeforeTimeout")
    ),
    *(("scheduledEventsPolicy", name, "automaticallyApprove") for name in _POLICIES.values()),
    _ALL_DOWN,
    _ENABLE,
    _VERSION,
)


def profile_of(group: Group) -> JsonObject:
    """Return the terminate and image notifications of a group."""
    seconds = group.terminate_notice_s
    terminate: JsonObject = {"enable": bool(seconds)}
    if seconds:
        terminate["notBeforeTimeout"] = iso_duration(seconds)
    image: JsonObject = {"enable": group.reimage_notice}
    if group.reimage_notice:
        image["notBeforeTimeout"] = OS_IMAGE_NOTICE
    return {"terminateNotificationProfile": terminate, "osImageNotificationProfile": image}


def policy_of(group: Group) -> JsonObject:
    """Return the settings of a group for automatic approval and for Azure's services.

    Source: A-10, Z-6.
    """
    published: JsonObject = {"enable": bool(group.published)}
    if group.published:
        published["scheduledEventsApiVersion"] = group.published
    approved: JsonObject = {
        name: {"automaticallyApprove": impact in group.automatic_approval}
        for impact, name in _POLICIES.items()
    }
    return {
        **approved,
        "allInstancesDown": {"automaticallyApprove": group.approves_when_down},
        "scheduledEventsAdditionalPublishingTargets": {"eventGridAndResourceGraph": published},
    }


def with_settings(group: Group, profile: Any, policy: Any) -> Group:  # noqa: ANN401 - JSON
    """Return a group with the settings of a request; None changes nothing.

    Raises:
        ValidationFailed: a member has the wrong type.
        FleetContradiction: the notice is not between PT5M and PT15M.
    """
    whole = {"scheduledEventsProfile": profile, "scheduledEventsPolicy": policy}
    terminate = member(whole, "scheduledEventsProfile", "terminateNotificationProfile")
    if terminate is not None:
        notice = _notice(terminate, "terminateNotificationProfile", _TERMINATE_DEFAULT)
        group = replace(group, terminate_notice_s=notice)
    image = member(whole, "scheduledEventsProfile", "osImageNotificationProfile")
    if image is not None:
        notice = _notice(image, "osImageNotificationProfile", OS_IMAGE_NOTICE)
        if notice and iso_duration(notice) != OS_IMAGE_NOTICE:
            raise ValidationFailed(
                where="osImageNotificationProfile.notBeforeTimeout",
                problem=f"must be {OS_IMAGE_NOTICE}",
            )
        group = replace(group, reimage_notice=bool(notice))
    approved = set(group.automatic_approval)
    for impact, name in _POLICIES.items():
        given = member(whole, "scheduledEventsPolicy", name, "automaticallyApprove")
        if given is not None:
            approved.discard(impact)
            if _truth(given, name):
                approved.add(impact)
    group = replace(group, automatic_approval=frozenset(approved))
    return _with_publishing(group, whole)


def _with_publishing(group: Group, whole: JsonObject) -> Group:
    """Return the group with a request's settings for stopped VMs, Event Grid and the Graph."""
    down = member(whole, *_ALL_DOWN)
    if down is not None:
        group = replace(group, approves_when_down=_truth(down, "allInstancesDown"))
    enable, version = member(whole, *_ENABLE), member(whole, *_VERSION)
    published = group.published
    if version is not None:
        if version not in VERSIONS:
            problem = f"must be one of {', '.join(VERSIONS)}"
            raise ValidationFailed(where="scheduledEventsApiVersion", problem=problem)
        if published or enable:
            published = version
    if enable is not None:
        wanted = _truth(enable, "eventGridAndResourceGraph.enable")
        published = (published or VERSIONS[-1]) if wanted else ""
    return replace(group, published=published)


def _notice(profile: object, where: str, default: str) -> int:
    """Return the notice of a profile in seconds; 0: disabled."""
    if not isinstance(profile, dict):
        raise ValidationFailed(where=where, problem="must be an object")
    text = profile.get("notBeforeTimeout") or default
    try:
        notice_s = read_duration_s(str(text))
    except ValueError:
        problem = "must be an ISO 8601 duration such as PT5M"
        raise ValidationFailed(where=f"{where}.notBeforeTimeout", problem=problem) from None
    return notice_s if _truth(profile.get("enable", False), f"{where}.enable") else 0


def _truth(value: object, where: str) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ValidationFailed(where=where, problem="must be true or false")
    return value
