"""The parts of a plan, and the request it answers; values only, no decision.

Source: F-2. All times are ms since the epoch UTC.
"""

from __future__ import annotations

import hashlib

from forewarn.planning.blockers import Blocker
from forewarn.planning.policy import Budget, Subject
from forewarn.values import value


@value
class Asked:
    """What a maintenance asks for: which hosts, for how long each, and under which conditions."""

    hosts: tuple[str, ...]
    #: The time the work on each host takes, in seconds; above 0.
    duration_s: int = 600
    #: VMs leave their host first, within this many seconds; 0: they stay on it.
    move_s: int = 0
    #: They return after the work, within this many seconds, notice included; 0: they stay away.
    return_s: int = 0
    earliest_ms: int = 0
    #: When the last host must be done; 0: no deadline.
    deadline_ms: int = 0
    #: Budgets that the maintenance adds to those of the policy.
    budgets: tuple[Budget, ...] = ()
    #: Hosts of the canary wave; where it is empty the planner takes the first that may go together.
    canary_hosts: tuple[str, ...] = ()
    #: Granted postponements: (host, not before, at whose request).
    postponed: tuple[tuple[str, int, str], ...] = ()
    #: The same seed gives the same plan.
    seed: int = 0
    #: How much work goes into fewer waves: hosts placed or exchanged after the first solution.
    steps: int = 200_000

    @property
    def host_s(self) -> int:
        """How long a host is under work, its VMs' moves included, in seconds."""
        return self.move_s + self.duration_s + self.return_s


@value
class Live:
    """Work that is announced or running: of this maintenance, of another one, or by hand."""

    operation: str
    host: str
    #: Groups with VMs there that it disturbs, where it does not occupy the whole host.
    groups: tuple[str, ...] = ()
    #: When it ends at the latest; 0: unknown.
    ends_ms: int = 0
    #: Hosts where its VMs arrive; empty: they stay.
    destinations: tuple[str, ...] = ()
    #: Whether it occupies the whole host; work on one VM does not.
    whole_host: bool = True
    #: Whether routine work in other fault domains of its groups waits for it. Source: G-1.
    disturbs_groups: bool = True


@value
class FleetState:
    """What is true of the fleet now, beside where its VMs are."""

    #: Work that is announced or running, without that of the hosts in `announced`.
    live: tuple[Live, ...] = ()
    #: Hosts that have failed: they count as disturbed, and no VM arrives there.
    failed: tuple[str, ...] = ()
    #: Hosts of the plan in force that are done.
    done: tuple[str, ...] = ()
    #: When owners were last disturbed: (owner, end).
    owners_disturbed: tuple[tuple[str, int], ...] = ()
    #: The plan in force, of which a new one is the child.
    in_force: Plan | None = None
    #: Hosts of the plan in force that are announced or running: they stay as they are.
    announced: tuple[str, ...] = ()
    #: Number of the last wave that was announced by any plan before; 0: none was.
    last_wave: int = 0
    #: When the pause after that wave is over; 0: there is none.
    paused_until_ms: int = 0


@value
class VmMove:
    """A VM, by its number in the fleet, and the host it goes to before the work starts.

    Empty: its driver's scheduler chooses.
    """

    vm: int
    to_host: str


@value
class PlanEntry:
    """What a plan says of one host that can be done."""

    host: str
    #: Number of its wave, 1 or more.
    wave: int
    #: When the VMs on it get notice.
    shown_ms: int
    earliest_start_ms: int
    latest_start_ms: int
    earliest_end_ms: int
    latest_end_ms: int
    #: Names of the groups that get notice: all with VMs on the host then.
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
    #: What it waits for first.
    waits: Blocker
    canary: bool = False


@value
class WaveBound:
    """A number of waves that no plan for the same can go below, and why."""

    waves: int
    argument: str


@value
class Plan:
    """Who is done when, who is not and why; never changed, replaced by a child."""

    id: str
    #: Id of the plan it takes the place of; empty for a first one.
    parent: str
    made_ms: int
    asked: Asked
    #: One for each host that can be done, by wave and name.
    entries: tuple[PlanEntry, ...]
    #: Hosts that cannot be done, by name, each with its blocker.
    blocked: tuple[tuple[str, Blocker], ...]
    #: Waves that are not announced, in the order of time.
    waves: tuple[Wave, ...]
    #: For the waves that are not announced.
    bound: WaveBound
    #: The limits that hold, each resolved to a number; those that never bind are left out.
    limits: tuple[tuple[Subject, int], ...] = ()


def content_id(
    parent: str, made_ms: int, *, entries: tuple[PlanEntry, ...], blocked: object
) -> str:
    """Return the id of a plan: 16 hexadecimal digits, the same for the same content."""
    digest = hashlib.sha256(f"{parent} {made_ms} {blocked}\n".encode())
    for entry in entries:
        line = f"{entry.host} {entry.wave} {entry.shown_ms} {entry.latest_start_ms} "
        line += " ".join(f"{move.vm}>{move.to_host}" for move in entry.moves)
        digest.update(line.encode())
    return digest.hexdigest()[:16]
