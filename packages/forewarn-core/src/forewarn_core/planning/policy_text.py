"""A policy as JSON text, for the store and for history; every member declares its form.

`api/policy_file.py` reads the policy files that people write.
"""

from __future__ import annotations

import json

from forewarn_base.values import replace
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.members import PolicyMember, StoredForm, members_of


def policy_text(policy: MaintenancePolicy) -> str:
    """Encode a policy; equal policies give equal text."""
    form: dict[str, object] = {}
    for name, each in members_of(policy):
        members = getattr(policy, name)
        form |= each.stored.write(members) if each.stored else {name: members}
    return json.dumps(form, separators=(",", ":"), ensure_ascii=False)


def read_policy(text: str) -> MaintenancePolicy:
    """Decode a policy; members that an earlier version did not store have their defaults."""
    form = json.loads(text)
    every = members_of(MaintenancePolicy)
    members = {name: _restored(name, each, form) for name, each in every if name in form}
    return replace(MaintenancePolicy(), **members)


def _restored(name: str, each: PolicyMember, form: StoredForm) -> object:
    if each.stored:
        return each.stored.read(form)
    return tuple(form[name]) if isinstance(form[name], list) else form[name]
