"""Choice job: chooses when declared work may disturb this VM, by the rule of the configuration.

The service evaluates the rule with the openings that it has, and changes no choice that stands: a
choice of a person wins. The job chooses for its own VM alone; a choice of the API is for all VMs of
the owner on the host. Source: T-2, T-16.
"""

from __future__ import annotations

import json
import sys

from forewarn.agent.json_fields import flag, inner, member, several, words
from forewarn.agent.sdk.declarations import ChoiceNotAccepted, Declarations

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: States of a resource for which the rule chooses.
WAITING = ("open", "displaced")
#: Members of the rule's window.
WINDOW = ("weekdays", "from", "to", "time_zone")


def main(form: dict[str, Any]) -> int:
    """Choose for each declaration that waits for this VM; print what was chosen as JSON."""
    settings, names = inner(form, "settings"), frozenset(words(form, "names"))
    declarations = Declarations(
        member(settings, "url", ""),
        token_file=member(settings, "token_file", ""),
        ca_file=member(settings, "ca_file", ""),
    )
    chosen, problems = [], []
    for each in declarations.declared():
        vm = _waiting_vm(each, names)
        if vm:
            try:
                chosen += _choose(declarations, each["id"], vm, settings)
            except ChoiceNotAccepted as refused:
                problems.append(f"{each['id']}: {refused}")
    print(json.dumps({"chosen": chosen, "problems": problems}))  # noqa: T201
    sys.stdout.flush()
    return 0


def _waiting_vm(declaration: dict[str, Any], names: frozenset[str]) -> str:
    """Return this VM as the declaration names it; empty: nothing waits for its choice."""
    for resource in several(declaration, "resources"):
        for vm in words(resource, "vms"):
            if vm.lower() in names and member(resource, "state", "") in WAITING:
                return vm
    return ""


def _choose(
    declarations: Declarations, declaration: str, vm: str, settings: Mapping[str, Any]
) -> list[str]:
    """Choose by the rule; return what was chosen, in words."""
    rule = {
        "within": {name: settings[name] for name in WINDOW if name in settings},
        "otherwise": member(settings, "otherwise", "nothing"),
        "approve": flag(settings, "approve", default=False),
        "unchosen": True,
    }
    results = declarations.choose(declaration, vm, rule)
    return [
        f"{declaration}: {each.get('start') or each.get('decision')} for {each.get('host')}"
        for each in results
    ]
