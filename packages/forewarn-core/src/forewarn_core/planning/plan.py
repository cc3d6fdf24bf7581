"""The parts of a plan and its request; values only.

Source: F-2. All times are ms since the epoch UTC.
"""

from __future__ import annotations

import hashlib

from forewarn_base.values import value
from forewarn_core.planning.durations import DurationSample, LearnedDuration
from forewarn_core.planning.policy import Budget, Subject
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.exempt import NONE, Exemption
from forewarn_core.rules.hand_back import DEADLINE


@value
class HandBack:
    """When declared work may begin on a host. Times are ms since the epoch UTC."""

    host: str
    #: Its earliest start; 0: any time.
    at_ms: int = 0
    #: What that time is.
    subject: str = ""
    #: For a chosen start, the deadline from which on the work may begin if a plan cannot keep that
    #: start: between the two, nobody chose to be disturbed. 0: the start is not chosen.
    otherwise_ms: int = 0

    def allows(self, earliest_ms: int, latest_ms: int) -> bool:
        """Whether the work may begin between two times, or at one of them."""
        chosen = earliest_ms == latest_ms == self.at_ms and bool(self.otherwise_ms)
        return chosen or earliest_ms >= (self.otherwise_ms or self.at_ms)

    def without_choice(self) -> HandBack:
        """Return the same for a plan that cannot keep the chosen start."""
        return HandBack(self.host, self.otherwise_ms, DEADLINE)


@value
class HostOrder:
    """The order that an owner wants for its hosts: those of its test group first. Source: T-8."""

    #: Hosts of the test group whose work is not announced.
    first: tuple[str, ...]
    #: Other hosts of the owner.
    after: tuple[str, ...]
    #: Time between the end of the work on the first hosts and the start on the others, in seconds.
    observation_s: int
    #: End, past or expected, of the work on hosts of the test group that is announced, or 0.
    ended_ms: int = 0

    @property
    def until_ms(self) -> int:
        """The earliest start on the other hosts if no host of the test group is left."""
        return self.ended_ms + self.observation_s * 1000 if self.ended_ms else 0


@value
class PlanRequest:
    """The request of a maintenance: its hosts, the duration of each, and the conditions."""

    hosts: tuple[str, ...]
    #: Duration of the work on each host, in seconds; above 0.
    duration_s: int = 600
    #: VMs leave their host first, within this many seconds; 0: the VMs stay.
    move_s: int = 0
    #: VMs return after the work, within this many seconds, notice included; 0: no return.
    return_s: int = 0
    earliest_ms: int = 0
    #: Deadline of the last host; 0: no deadline.
    deadline_ms: int = 0
    #: Additional budgets of the maintenance.
    budgets: tuple[Budget, ...] = ()
    #: Hosts of the canary wave; if empty, the planner uses the first hosts that may share a wave.
    canary_hosts: tuple[str, ...] = ()
    #: Granted postponements: (host, earliest start, requesting principal).
    postponed: tuple[tuple[str, int, str], ...] = ()
    #: When declared work may begin on hosts where it may not begin at any time. Source: T-3.
    hand_backs: tuple[HandBack, ...] = ()
    #: Rules that the work need not keep. Source: T-6.
    exemption: Exemption = NONE
    #: Key of the label whose values never share a wave; empty: none. Source: T-12.
    failure_domain: str = ""
    #: The order of owners' hosts; no two contradict each other. Source: T-8.
    orders: tuple[HostOrder, ...] = ()
    #: The same seed gives the same plan.
    seed: int = 0
    #: Effort for fewer waves: hosts placed or exchanged after the first solution.
    steps: int = 200_000


@value
class Live:
    """Announced or running work of any maintenance, or manual work."""

    operation: str
    host: str
    #: Number of the VM in the fleet, if the work is on one VM; None: it occupies the whole host.
    vm: int | None = None
    #: Latest end; 0: unknown.
    ends_ms: int = 0
    #: Destinations of the VMs; empty: the VMs stay.
    destinations: tuple[str, ...] = ()
    #: Whether routine work in other fault domains of its groups waits for this work. Source: G-1.
    disturbs_groups: bool = True


@value
class FleetState:
    """The current state of the fleet apart from the placement of VMs."""

    #: Announced or running work.
    live: tuple[Live, ...] = ()
    #: Failed hosts, which count as disturbed; no VM moves there.
    failed: tuple[str, ...] = ()
    #: Hosts of the maintenance that are announced, at work or done; they are not planned again.
    done: tuple[str, ...] = ()
    #: Ends of the owners' last disturbances: (owner, end).
    owners_disturbed: tuple[tuple[str, int], ...] = ()
    #: The plan in force, which becomes the parent of the new one.
    in_force: Plan | None = None
    #: Number of the last wave that any plan announced; 0: none.
    last_wave: int = 0
    #: End of the pause after the last announced wave; 0: no pause.
    paused_until_ms: int = 0
    #: Earlier work of the same kind; empty where the policy does not learn from it. Source: F-9.
    samples: tuple[DurationSample, ...] = ()


@value
class VmMove:
    """A VM, by its number in the fleet, and its destination before the work starts.

    Empty if the driver's scheduler chooses the destination.
    """

    vm: int
    to_host: str


@value
class PlanEntry:
    """The plan for one host that can be done."""

    host: str
    #: Number of the host's wave, 1 or more.
    wave: int
    #: When the VMs on the host get notice.
    shown_ms: int
    earliest_start_ms: int
    latest_start_ms: int
    earliest_end_ms: int
    latest_end_ms: int
    #: Names of the groups that get notice: all groups with VMs on the host at that time.
    groups: tuple[str, ...] = ()
    moves: tuple[VmMove, ...] = ()


@value
class Wave:
    """Operations that may run at the same time."""

    number: int
    shown_ms: int
    earliest_start_ms: int
    latest_start_ms: int
    latest_end_ms: int
    hosts: tuple[str, ...]
    #: The first blocker of the host.
    waits: Blocker
    canary: bool = False


@value
class WaveBound:
    """The least number of waves of any plan for this request, with the reason."""

    waves: int
    argument: str


@value
class Plan:
    """The wave or the blocker of each host; never changed, only replaced by a child."""

    id: str
    #: Id of the replaced plan; empty for a first plan.
    parent: str
    made_ms: int
    request: PlanRequest
    #: One entry for each host that can be done, ordered by wave and name; empty in a plan in force.
    entries: tuple[PlanEntry, ...]
    #: Hosts that cannot be done, ordered by name, each with its blocker.
    blocked: tuple[tuple[str, Blocker], ...]
    #: Waves that are not announced yet, ordered by time.
    waves: tuple[Wave, ...]
    #: The lower bound on the number of remaining waves.
    bound: WaveBound
    #: The limits in force, each as a number; limits above the demand are left out.
    limits: tuple[tuple[Subject, int], ...] = ()
    #: Durations that count instead of what was asked. Source: F-9.
    learned: tuple[LearnedDuration, ...] = ()


def content_id(
    parent: str, made_ms: int, *, entries: tuple[PlanEntry, ...], blocked: object, seed: int
) -> str:
    """Return the id of a plan: 16 hexadecimal digits, the same for the same content.

    The seed differs between maintenances, which may ask for the same hosts at the same instant.
    """
    digest = hashlib.sha256(f"{seed} {parent} {made_ms} {blocked}\n".encode())
    for entry in entries:
        line = f"{entry.host} {entry.wave} {entry.shown_ms} {entry.latest_start_ms} "
        line += " ".join(f"{move.vm}>{move.to_host}" for move in entry.moves)
        digest.update(line.encode())
    return digest.hexdigest()[:16]
