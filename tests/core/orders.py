"""Orders of many hosts, step by step. No test may go in here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.policy import Policy
from forewarn.core.step import PORTION_MAX
from forewarn.core.stimulus import (
    ChangeTopology,
    Enable,
    PlaceOrder,
    Proceed,
    RequestMaintenance,
)
from forewarn.core.topology import Group, Host, Vm
from tests.core.rig import Rig

if TYPE_CHECKING:
    from forewarn.core.step import Outcome
    from forewarn.core.stimulus import Stimulus

S = OperationState
#: Hosts of an order that takes several portions.
HOSTS = 3 * PORTION_MAX + 2
NAMES = tuple(f"h{n}" for n in range(HOSTS))


def apart(*, enabled: bool = True, policy: Policy | None = None) -> Rig:
    """Hosts of one VM and one group each."""
    rig = Rig(policy=policy or Policy())
    rig.tell(
        ChangeTopology(
            hosts=tuple(Host(name) for name in NAMES),
            groups=tuple(Group(f"g-{name}") for name in NAMES),
            vms=tuple(Vm(f"v-{name}", name, f"g-{name}") for name in NAMES),
        )
    )
    if enabled:
        rig.tell(*(Enable(f"g-{name}") for name in NAMES))
    return rig


def work(*targets: str, cause: Cause = Cause.HOST_REBOOT, **more: object) -> RequestMaintenance:
    """Ask for work on hosts; on all of them if none are named."""
    return RequestMaintenance(cause=cause, targets=targets or NAMES, **more)  # type: ignore[arg-type]


def one_step(rig: Rig, stimulus: Stimulus) -> Outcome:
    """Step once, and adopt; what is left stays so."""
    return rig._tell(stimulus)


def begun(rig: Rig, portions: int) -> int:
    """Place an order and have some portions of it planned; return its number."""
    outcome = one_step(rig, PlaceOrder(work()))
    [number] = outcome.operations
    for _ in range(portions):
        outcome = one_step(rig, Proceed((number,)))
    assert number in outcome.rest
    return number


def states(rig: Rig) -> list[OperationState]:
    """The states of all operations that ever were."""
    return [each.state for each in rig.operations.values()]


def actions(rig: Rig, action: str) -> list[str]:
    """What history tells of one kind."""
    return [entry.text for entry in rig.entries if entry.action == action]
