"""Routes by which owners order their hosts of declared work: test first. Source: T-8."""

from __future__ import annotations

from forewarn_base.validation.fields import ValidationFailed
from forewarn_core.access.roles import Permission
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.host_admission import known_maintenance
from forewarn_core.fleet.order_commands import early_choices
from forewarn_core.fleet.owner_choices import OwnerChoice
from forewarn_server.api import request_forms as forms
from forewarn_server.api import schemas
from forewarn_server.api.declaration_routes import DECLARATION, LOST_CHOICE, named_declaration
from forewarn_server.api.maintenance_routes import number_of
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.control.plane import StateView

#: Observation without a stated one, in seconds.
OBSERVATION_S = 86_400
#: Most owners that an error names.
OWNERS_MAX = 10
_ANSWER = schemas.object_schema(declaration=DECLARATION.schema())
_NAMED = schemas.object_schema(
    declaration=DECLARATION.schema(), displaced=schemas.list_of(LOST_CHOICE.schema())
)


@Route(
    "POST /v1/declarations/{id}/first-group",
    Permission.APPROVE,
    form=forms.FIRST_GROUP,
    answer=_NAMED,
)
async def name_first_group(call: ApiCall) -> ApiResponse:
    """Name a test group, whose hosts are worked on before the owner's other hosts.

    The others follow after an observation period. Without a group, no order is wanted any more.
    `displaced` has the owner's choices that come before the test is over.
    """
    number, form = number_of(call), call.form
    owner = await _owner(call, number)
    policy = await call.control.read(lambda view: view.maintenance_policy)
    observation_s = form.get("observation", min(OBSERVATION_S, policy.observation_max_s))
    word = stimuli.NameFirstGroup(
        number, owner, form.get("group", ""), observation_s, call.principal.name
    )
    await call.control.submit(word, call.actor)
    named = await named_declaration(call, number)
    now_ms = call.control.clock.now_ms()
    displaced = await call.control.read(lambda view: _displaced(view, number, owner, now_ms=now_ms))
    return await call.encode(
        lambda: {"declaration": DECLARATION.of(named), "displaced": LOST_CHOICE.each(displaced)}
    )


def _displaced(view: StateView, number: int, owner: str, *, now_ms: int) -> list[OwnerChoice]:
    """Return the chosen starts of an owner that come before its test is over."""
    draft = (view.unscoped or view).draft(now_ms)
    early = early_choices(draft, known_maintenance(draft, number), owner)
    return [each for each in early if each.owner == owner]


@Route(
    "POST /v1/declarations/{id}/hold",
    Permission.APPROVE,
    form=forms.HOLD_HOSTS,
    answer=_ANSWER,
)
async def hold_hosts(call: ApiCall) -> ApiResponse:
    """Hold an owner's hosts after its test: until their hand-back deadline no choice counts."""
    return await _hold(call, call.form["reason"])


@Route(
    "POST /v1/declarations/{id}/resume",
    Permission.APPROVE,
    form=forms.RESUME_HOSTS,
    answer=_ANSWER,
)
async def resume_hosts(call: ApiCall) -> ApiResponse:
    """No longer hold an owner's hosts after its test: its choices count again."""
    return await _hold(call, "")


async def _hold(call: ApiCall, reason: str) -> ApiResponse:
    number = number_of(call)
    word = stimuli.HoldHosts(number, await _owner(call, number), reason, call.principal.name)
    await call.control.submit(word, call.actor)
    return await _answered(call, number)


async def _answered(call: ApiCall, number: int) -> ApiResponse:
    named = await named_declaration(call, number)
    return await call.encode(lambda: {"declaration": DECLARATION.of(named)})


async def _owner(call: ApiCall, number: int) -> str:
    """Return the owner whose hosts are ordered: the named one, or the only one.

    Raises:
        Unknown: no such declaration concerns the caller.
        ValidationFailed: the owner must be named, or has no VM on the declared hosts.
    """
    named = await named_declaration(call, number)
    owners = {each.owner for each in named.resources}
    owner = call.form.get("owner")
    if owner is None and len(owners) == 1:
        return owners.pop()
    if owner not in owners:
        names = ", ".join(sorted(owners - {""})[:OWNERS_MAX])
        problem = f"must be one of the owners of VMs on the declared hosts: {names}"
        raise ValidationFailed(where="owner", problem=problem)
    return str(owner)
