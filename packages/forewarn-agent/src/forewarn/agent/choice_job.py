"""Choice job: chooses when declared work may disturb this VM, by the rule of the configuration.

The service evaluates the rule with the openings that it has, and changes no choice that stands: a
choice of a person wins. The job chooses for its own VM alone; a choice of the API is for all VMs of
the owner on the host. Source: T-2, T-16.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from forewarn.agent.json_fields import flag, inner, member, several, words
from forewarn.agent.sdk.declarations import ChoiceNotAccepted, Declarations, VmNotOwned

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: States of a resource for which the rule chooses.
WAITING = ("open", "displaced")
#: What to do if the owner of the token does not have this VM.
ADVICE = "[choose] token_file must have a token of this VM's owner"
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
    try:
        declared = _declared(declarations, [member(form, "name", ""), *sorted(names)])
    except VmNotOwned as error:
        declared, problems = [], [f"{error.clause}; {ADVICE}"]
    for each in declared:
        vm = _waiting_vm(each, names)
        if vm:
            try:
                starts = _choose(declarations, each["id"], vm, settings)
            except ChoiceNotAccepted as refused:
                problems.append(f"{each['id']}: {refused.clause}")
            else:
                chosen += starts
                if not starts:
                    problems.append(f"{each['id']}: {_why_nothing(each, settings)}")
    print(json.dumps({"chosen": chosen, "problems": problems}))  # noqa: T201
    sys.stdout.flush()
    return 0


def _declared(declarations: Declarations, names: list[str]) -> list[dict[str, Any]]:
    """Return the declarations of this VM's host; the service knows the VM by one of its names.

    Raises:
        VmNotOwned: the token's owner has no VM of these names.
    """
    first, *others = dict.fromkeys(names)
    try:
        return declarations.declared(first)
    except VmNotOwned:
        for name in others:
            with suppress(VmNotOwned):
                return declarations.declared(name)
        raise


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
    window = {name: settings[name] for name in WINDOW if name in settings}
    if "weekdays" in window:
        window["weekdays"] = words(window, "weekdays")
    rule = {
        "within": window,
        "otherwise": member(settings, "otherwise", "nothing"),
        "approve": flag(settings, "approve", default=False),
        "unchosen": True,
    }
    results = declarations.choose(declaration, vm, rule)
    return [
        f"{declaration}: {each.get('start') or each.get('decision')} for {each.get('host')}"
        for each in results
    ]


def _why_nothing(declaration: Mapping[str, object], settings: Mapping[str, Any]) -> str:
    """Return why the rule has chosen nothing for a VM that waits for a choice."""
    otherwise = member(settings, "otherwise", "nothing")
    if member(declaration, "severity", "") == "emergency":
        return "it is an emergency, for which a rule can only release: choose by hand"
    if otherwise == "nothing":
        return "no opening is within the window of the rule, and `otherwise` chooses nothing"
    return "the host has no opening before the hand-back deadline"
