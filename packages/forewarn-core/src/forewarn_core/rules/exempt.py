"""Emergency: the rules that it overrides, and those that a request waives by name. Source: T-6.

A member of the policy declares how an emergency overrides it, and a code the word that waives its
rule. The planner and the core judge an emergency by the policy that `policy_for` returns, and ask
`Exemption.waives` about rules without members. Choices and postponements are left out by
`fleet/hand_back.py` and `fleet/host_admission.py`.
"""

from __future__ import annotations

from typing import TypeVar

from forewarn_base.values import replace, value
from forewarn_core.rules.blockers import Code
from forewarn_core.rules.members import members_of

_P = TypeVar("_P")


@value
class Exemption:
    """The rules that work need not keep."""

    emergency: bool = False
    #: Words of `every_waiver`.
    waived: tuple[str, ...] = ()

    def waives(self, code: Code) -> bool:
        """Whether the work need not keep the rule of a code."""
        return self.emergency and code.meaning.waiver in self.waived


NONE = Exemption()


def policy_for(policy: _P, exemption: Exemption) -> _P:
    """Return a policy without the members that do not bind work."""
    if not exemption.emergency:
        return policy
    overridden = [(name, each.emergency) for name, each in members_of(policy) if each.emergency]
    changes = {
        name: each.value
        for name, each in overridden
        if each.waived is None or exemption.waives(each.waived)
    }
    return replace(policy, **changes)
