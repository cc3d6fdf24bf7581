"""The members of a maintenance policy that belong to no rule. Source: F-3, F-9, G-4, H-7, P-8."""

from __future__ import annotations

from dataclasses import field

from forewarn_base.values import Word
from forewarn_core.rules.members import (
    ChoiceKind,
    CountKind,
    ListKind,
    SecondsKind,
    Stored,
    StoredForm,
    TextKind,
    member,
    members,
)


class ConfirmedAct(Word):
    """Acts that may need a second principal's confirmation, by their effect. Source: P-8."""

    #: Approval on behalf of an owner, or an option by which a group is asked less.
    ANSWER = "answer"
    FAIL_HOST = "fail-host"
    #: Work by which a principal affects many hosts within a time.
    START_MAINTENANCE = "start-maintenance"
    APPLY_POLICY = "apply-policy"
    #: A new token or role, or a token that is accepted again.
    CREATE_PRINCIPAL = "create-principal"
    #: A change of the machines that answer for a group.
    MOVE_ADDRESS = "move-address"


#: Acts that the release before knows. It cannot read a policy with others in the same member.
#: Source: H-8.
_FIRST_ACTS = frozenset({"answer", "fail-host", "start-maintenance", "apply-policy"})


def _stored_acts(acts: tuple[ConfirmedAct, ...]) -> dict[str, object]:
    words = [each.value for each in acts]
    members: dict[str, object] = {"confirm": [each for each in words if each in _FIRST_ACTS]}
    return members if _FIRST_ACTS.issuperset(words) else {**members, "confirm_all": words}


def _acts_of(form: StoredForm) -> tuple[ConfirmedAct, ...]:
    return tuple(map(ConfirmedAct, form.get("confirm_all", form.get("confirm", ()))))


#: Impacts in Azure's words; the core knows more of them.
_IMPACTS = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")


@members
class OtherMembers:
    """The members of no rule."""

    __slots__ = ()

    #: Number of hosts in the canary wave; 0: no canary wave.
    canary_count: int = field(
        default=0,
        metadata=member(
            "canary", CountKind(), "Number of hosts in the first wave, the canary wave."
        ),
    )
    #: Hosts that may fail before a maintenance stops, unless the maintenance sets its own number.
    max_failures: int = field(
        default=0,
        metadata=member(
            "max_failures",
            CountKind(),
            "Default number of hosts that may fail before a maintenance stops.",
        ),
    )
    #: Acts that a second principal must confirm, and the time limit of a confirmation. Source: P-8.
    confirm: tuple[ConfirmedAct, ...] = field(
        default=(),
        metadata=member(
            "confirm",
            ListKind(
                ChoiceKind({act.value: act for act in ConfirmedAct}),
                len(ConfirmedAct),
                distinct=True,
            ),
            "Calls that a second operator must confirm (default: none). `answer`: approving for an "
            "owner, or changing a group's options or owner so that it is asked less. `fail-host`: "
            "marking a host as failed. `start-maintenance`: work, of any kind, that affects more "
            "than `confirm_above` hosts. `apply-policy`: changing this policy. `create-principal`: "
            "granting a role, creating a token, or resuming one. `move-address`: changing which "
            "VMs a listening group has, or an address, interface or instance id of one of them.",
            stored=Stored(_stored_acts, _acts_of),
        ),
    )
    confirm_within_s: int = field(
        default=3600,
        metadata=member(
            "confirm_within", SecondsKind(), "Time limit of a confirmation (default: 1 h)."
        ),
    )
    #: Number of hosts that one principal's work may affect without confirmation, within a time.
    confirm_above: int = field(
        default=0,
        metadata=member(
            "confirm_above",
            CountKind(),
            "Number of hosts that the work of one operator may affect without confirmation: hosts "
            "of live work, and of work that ended within `confirm_period` (default: 0).",
        ),
    )
    confirm_period_s: int = field(
        default=86_400,
        metadata=member(
            "confirm_period",
            SecondsKind(),
            "Time for which `confirm_above` counts a host after the end of the work (default: "
            "24 h).",
        ),
    )
    #: Impacts, in Azure's words, whose work waits until its VMs can read its notice. Source: H-7.
    wait_until_shown: tuple[str, ...] = field(
        default=("Reboot", "Redeploy"),
        metadata=member(
            "wait_until_shown",
            ListKind(ChoiceKind({each: each for each in _IMPACTS}), len(_IMPACTS), distinct=True),
            "Impacts whose work waits until the VMs can read the event (default: `Reboot`, "
            "`Redeploy`). Other work continues after `[lifecycle] show_timeout_s`.",
        ),
    )

    #: The percentile of earlier work's durations by which work is planned; 0: as asked. F-9.
    duration_percentile: int = field(
        default=0,
        metadata=member(
            "duration_percentile",
            CountKind(100),
            "Plans work with the duration that this percentage of earlier work of the same kind "
            "took at most, instead of the requested duration (default: 0, as requested).",
        ),
    )
    #: Key of the label of hosts whose earlier work is compared; empty: all hosts together.
    duration_label: str = field(
        default="",
        metadata=member(
            "duration_label",
            TextKind(64),
            "Compares earlier work only on hosts with the same value of this label, such as "
            "`model` (default: all hosts).",
        ),
    )
    #: With less earlier work than this, the duration is as asked.
    duration_samples: int = field(
        default=20,
        metadata=member(
            "duration_samples",
            CountKind(1_000),
            "Minimum number of earlier operations; with fewer, the requested duration counts "
            "(default: 20).",
        ),
    )

    #: Keys of labels whose values are failure domains. Source: T-12.
    failure_domains: tuple[str, ...] = field(
        default=(),
        metadata=member(
            "failure_domains",
            ListKind(TextKind(63), 16, distinct=True),
            "Labels whose values are failure domains, such as `rack` or `power` (default: none). A "
            "maintenance may work on one failure domain at a time.",
        ),
    )
