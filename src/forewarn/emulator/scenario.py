"""A scenario as values: the machines it brings and its steps. Nothing is read or run in here."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.core.impact import Cause, Impact, Source

#: What stands for the machine a scenario is run on, in place of a name.
ON_VM, ON_HOST, ON_GROUP = "$vm", "$host", "$group"


class Until(Enum):
    """What a step may wait for, of the work of another step."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"
    #: Of a maintenance: stopped by its gate.
    STOPPED = "stopped"


@value
class RequestedWork:
    """Ask for maintenance."""

    cause: Cause
    on: tuple[str, ...]
    #: Name of this work for later steps.
    label: str = ""
    impact: Impact | None = None
    source: Source | None = None
    description: str | None = None
    #: Expected interruption in seconds; -1 unknown.
    duration_s: int | None = None
    #: From asking to NotBefore, in ms; 0: as early as the notice owed allows.
    notice_ms: int = 0
    #: Host the VMs are on afterwards.
    destination: str = ""
    #: Asked for this many times; above one, the targets take turns.
    times: int = 1
    #: Between two times, in ms.
    every_ms: int = 0
    #: Added at random between two times, in ms at most.
    jitter_ms: int = 0


@value
class Maintain:
    """Start a maintenance of many hosts in waves."""

    hosts: tuple[str, ...]
    cause: Cause
    #: Time each host takes, in seconds.
    duration_s: int
    #: Name of this work for later steps.
    label: str = ""
    reason: str = ""
    #: Hosts of the first wave.
    canary: tuple[str, ...] = ()
    #: Hosts disturbed at a time; 0: as the policy says.
    max_at_once: int = 0
    #: Hosts that may fail before it is stopped.
    max_failures: int = 0


@value
class Wait:
    """Wait for what became of earlier work."""

    until: Until
    of: str
    #: Longest wait in ms; the scenario has failed then.
    within_ms: int


@value
class Approval:
    """VMs approve what earlier work shows them, unless it is too late."""

    of: str
    by: tuple[str, ...]
    #: Only events that name no VM but these; empty: every event they are shown.
    only: tuple[str, ...] = ()


@value
class Cancellation:
    """Withdraw earlier work that has not started."""

    of: str
    reason: str = ""


@value
class Completion:
    """End earlier work that runs, well or not."""

    of: str
    failed: bool = False
    reason: str = ""


@value
class Resumption:
    """Resume an earlier maintenance that was stopped."""

    of: str


@value
class Repairing:
    """Mark hosts as repaired."""

    hosts: tuple[str, ...]


@value
class Remark:
    """Print what to look at."""

    text: str


@value
class Pause:
    """Wait for some time."""


Act: TypeAlias = (
    RequestedWork
    | Maintain
    | Wait
    | Approval
    | Cancellation
    | Completion
    | Resumption
    | Repairing
    | Remark
    | Pause
)
#: What may have a label.
Labelled: TypeAlias = RequestedWork | Maintain


@value
class ScenarioStep:
    """One act and when it is done; times are the emulator's, so they follow its speed."""

    act: Act
    #: Since the scenario began, in ms; None: `after_ms` counts.
    at_ms: int | None = None
    #: Since the step before was done, in ms.
    after_ms: int = 0


@value
class DeclaredMachines:
    """What a scenario says of hosts, groups and VMs, by their names, as in a topology file."""

    hosts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    vms: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@value
class Scenario:
    """A story that can be repeated."""

    name: str
    title: str
    about: str
    steps: tuple[ScenarioStep, ...]
    machines: DeclaredMachines = field(default_factory=DeclaredMachines)
    #: Its steps by their labels.
    labels: Mapping[str, Labelled] = field(default_factory=dict)
    #: The policy that is in force while it runs, as in a policy file; empty: the one in force.
    policy: Mapping[str, object] = field(default_factory=dict)
