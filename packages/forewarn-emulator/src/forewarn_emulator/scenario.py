"""Values of a scenario: its machines and its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from forewarn_base.values import value
from forewarn_core.fleet.impact import Cause, Impact, Source

#: Placeholders for the names of the machines on which a scenario runs.
ON_VM, ON_HOST, ON_GROUP = "$vm", "$host", "$group"


class Until(Enum):
    """States of work for which a step can wait."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"
    #: Stopped by its gate; only for a maintenance.
    STOPPED = "stopped"


@value
class RequestedWork:
    """Step: request work."""

    cause: Cause
    on: tuple[str, ...]
    #: Label of this work, for later steps.
    label: str = ""
    impact: Impact | None = None
    source: Source | None = None
    description: str | None = None
    #: Expected interruption in seconds; -1 unknown.
    duration_s: int | None = None
    #: Least time for which its events are Started, in seconds; 0: as long as the interruption.
    started_for_s: int = 0
    #: Further interruptions, as seconds after the start and length in seconds.
    further: tuple[tuple[int, int], ...] = ()
    #: Time from request to NotBefore, in ms; 0: the least notice.
    notice_ms: int = 0
    #: Host of the VMs after the work.
    destination: str = ""
    #: Number of requests, distributed over the targets in turn.
    times: int = 1
    #: Interval between two requests, in ms.
    every_ms: int = 0
    #: Largest random addition to the interval, in ms.
    jitter_ms: int = 0


@value
class Maintain:
    """Step: start a maintenance of several hosts in waves."""

    hosts: tuple[str, ...]
    cause: Cause
    #: Duration of the work on each host, in seconds.
    duration_s: int
    #: Label of this work, for later steps.
    label: str = ""
    reason: str = ""
    #: Hosts of the first wave.
    canary: tuple[str, ...] = ()
    #: Most hosts disturbed at a time; 0: the policy's number.
    max_at_once: int = 0
    #: Most failed hosts before the maintenance stops.
    max_failures: int = 0


@value
class Wait:
    """Step: wait until earlier work has reached a state."""

    until: Until
    of: str
    #: Longest wait in ms, after which the scenario fails.
    within_ms: int


@value
class Approval:
    """Step: VMs approve the events of earlier work, unless already started."""

    of: str
    by: tuple[str, ...]
    #: VMs to which the events are limited; empty: all events.
    only: tuple[str, ...] = ()


@value
class Cancellation:
    """Step: withdraw earlier work that has not started."""

    of: str
    reason: str = ""


@value
class Completion:
    """Step: end earlier work that is running, as succeeded or failed."""

    of: str
    failed: bool = False
    reason: str = ""


@value
class Resumption:
    """Step: resume a stopped maintenance."""

    of: str


@value
class Repairing:
    """Step: mark hosts as repaired."""

    hosts: tuple[str, ...]


@value
class Remark:
    """Step: print a text for the user."""

    text: str


@value
class Recommendation:
    """Step: show a VM a recommendation that disturbs nothing, for some time. Source: Z-9."""

    vm: str
    #: Time until it leaves the document, in ms.
    lasts_ms: int


@value
class Pause:
    """Step: wait for some time."""


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
    | Recommendation
    | Pause
)
#: Types of steps that may have a label.
Labelled: TypeAlias = RequestedWork | Maintain


@value
class ScenarioStep:
    """A step and its time, by the emulator's clock."""

    act: Act
    #: Time after the start of the scenario, in ms; None: `after_ms` applies.
    at_ms: int | None = None
    #: Time after the end of the previous step, in ms.
    after_ms: int = 0


@value
class DeclaredMachines:
    """The hosts, groups and VMs in a scenario, by name, as in a topology file."""

    hosts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    vms: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@value
class Scenario:
    """A repeatable sequence of steps, with its machines."""

    name: str
    title: str
    about: str
    steps: tuple[ScenarioStep, ...]
    machines: DeclaredMachines = field(default_factory=DeclaredMachines)
    #: Labelled steps, by label.
    labels: Mapping[str, Labelled] = field(default_factory=dict)
    #: Policy during the run, in the format of a policy file; empty: the current policy.
    policy: Mapping[str, object] = field(default_factory=dict)
