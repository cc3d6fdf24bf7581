"""`scheduledEventsProfile` and `scheduledEventsPolicy`: how a group wants to be asked. Pure.

Azure has them on VMs and on sets; here they belong to the group a VM shares its document with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import Impact
from forewarn.core.topology import Group
from forewarn.operator_api.arm.json_values import member
from forewarn.validation.durations import iso_duration, read_duration_s
from forewarn.validation.fields import ValidationFailed
from forewarn.values import replace

if TYPE_CHECKING:
    from typing import Any

    from forewarn.operator_api.arm.json_values import JsonObject

#: What Azure takes where no time is given: the shortest terminate notification.
_TERMINATE_DEFAULT = "PT5M"
#: The one time an image upgrade or reimage may be announced ahead. Source: O-2.
OS_IMAGE_NOTICE = "PT15M"

_POLICIES = {
    Impact.REBOOT: "userInitiatedReboot",
    Impact.REDEPLOY: "userInitiatedRedeploy",
}
#: The members that are read here.
SETTINGS = (
    ("scheduledEventsProfile", "terminateNotificationProfile"),
    ("scheduledEventsProfile", "osImageNotificationProfile"),
    *(("scheduledEventsPolicy", name) for name in _POLICIES.values()),
)


def profile_of(group: Group) -> JsonObject:
    """Return a group's terminate and image notification."""
    seconds = group.terminate_notice_s
    terminate: JsonObject = {"enable": bool(seconds)}
    if seconds:
        terminate["notBeforeTimeout"] = iso_duration(seconds)
    image: JsonObject = {"enable": group.reimage_notice}
    if group.reimage_notice:
        image["notBeforeTimeout"] = OS_IMAGE_NOTICE
    return {"terminateNotificationProfile": terminate, "osImageNotificationProfile": image}


def policy_of(group: Group) -> JsonObject:
    """Return which of its user's acts a group has approved ahead. Source: A-10."""
    return {
        name: {"automaticallyApprove": impact in group.automatic_approval}
        for impact, name in _POLICIES.items()
    }


def with_settings(group: Group, profile: Any, policy: Any) -> Group:  # noqa: ANN401 - JSON
    """Return a group with what a request says; None changes nothing.

    Raises:
        ValidationFailed: a member is of the wrong kind.
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
    return replace(group, automatic_approval=frozenset(approved))


def _notice(profile: object, where: str, default: str) -> int:
    """Return the notice of a profile in seconds; 0: it is off."""
    if not isinstance(profile, dict):
        raise ValidationFailed(where=where, problem="must be an object")
    if not _truth(profile.get("enable", False), f"{where}.enable"):
        return 0
    text = profile.get("notBeforeTimeout") or default
    try:
        return read_duration_s(str(text))
    except ValueError:
        problem = "must be an ISO 8601 duration such as PT5M"
        raise ValidationFailed(where=f"{where}.notBeforeTimeout", problem=problem) from None


def _truth(value: object, where: str) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ValidationFailed(where=where, problem="must be true or false")
    return value
