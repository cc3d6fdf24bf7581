"""The rules that keep work on hosts waiting, one module for each.

Source: F-3, F-7, F-8, G-1. A rule has the codes of its blockers with their sentences, its members
of the policy, and the functions that judge it. The planner, admission, the start of work and `why`
call these functions; `planning/checker.py` and the simulator's checkers judge every rule a second
time, on their own.

The tuples below are in the order in which the rules are judged: of several blockers, people see the
first one, and of several times the last one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from forewarn_base.values import value
from forewarn_core.rules import (
    budget,
    capacity,
    fault_domain,
    hand_back,
    host_busy,
    notice,
    other_waits,
    owner_rest,
    pause,
    postponement,
    previous_wave,
    test_first,
    window,
)
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.budget import BudgetMembers
from forewarn_core.rules.hand_back import HandBackMembers
from forewarn_core.rules.notice import NoticeMembers
from forewarn_core.rules.other_members import OtherMembers
from forewarn_core.rules.owner_rest import OwnerRestMembers
from forewarn_core.rules.pause import PauseMembers
from forewarn_core.rules.postponement import PostponementMembers
from forewarn_core.rules.site import Earliest, Site
from forewarn_core.rules.test_first import TestFirstMembers
from forewarn_core.rules.window import WindowMembers


@value
class MaintenancePolicy(
    OtherMembers,
    TestFirstMembers,
    HandBackMembers,
    PostponementMembers,
    NoticeMembers,
    OwnerRestMembers,
    PauseMembers,
    WindowMembers,
    BudgetMembers,
):
    """The operator's rules for plans, in addition to the guarantees that always apply.

    Source: F-3, F-7, G-4. Members come from the last base class to the first.
    """

    @property
    def counts_ended_s(self) -> int:
        """How long ended work counts, for an owner's rest or for a confirmation, in seconds."""
        return max(self.owner_rest_s, self.confirm_period_s)

    @property
    def spaces_waves(self) -> bool:
        """Whether time must pass between the waves of a maintenance."""
        return bool(self.pause_s or self.owner_rest_s)


#: The rules with codes; importing a rule makes its codes.
RULES = (
    notice,
    previous_wave,
    window,
    other_waits,
    postponement,
    hand_back,
    test_first,
    pause,
    owner_rest,
    host_busy,
    fault_domain,
    capacity,
    budget,
)

_Earliest: TypeAlias = Callable[[MaintenancePolicy, Site], Iterable[Earliest]]

_Blockers: TypeAlias = Callable[[MaintenancePolicy, Site], Iterator[Blocker]]

#: Blockers of any work by other work, and when the other work ends.
OCCUPIED: tuple[_Blockers, ...] = (host_busy.blockers, fault_domain.blockers)
OCCUPIED_UNTIL: tuple[_Earliest, ...] = (host_busy.earliest, fault_domain.earliest)
#: Blockers of the start that an owner chooses for declared work.
CHOOSING: tuple[_Blockers, ...] = (
    hand_back.choosing,
    notice.choosing,
    other_waits.choosing,
    test_first.choosing,
    window.choosing,
    previous_wave.choosing,
    fault_domain.choosing,
    budget.choosing,
)
#: Blockers before a host is announced.
ANNOUNCING: tuple[_Blockers, ...] = (
    notice.blockers,
    postponement.blockers,
    hand_back.blockers,
    test_first.blockers,
    owner_rest.blockers,
)
#: Blockers before announced work of a maintenance starts.
STARTING: tuple[_Blockers, ...] = (owner_rest.blockers,)
#: Earliest times that people set, and the pause: they stay in force after they have passed, because
#: the clock may be set back. Source: N-4.
REQUESTED: tuple[_Earliest, ...] = (
    other_waits.earliest,
    postponement.earliest,
    hand_back.earliest,
    pause.earliest,
)
#: Earliest times of a planned wave.
PLANNED: tuple[_Earliest, ...] = (
    notice.earliest,
    previous_wave.earliest,
    *REQUESTED,
    test_first.earliest,
    owner_rest.earliest,
)


def blockers_of(
    rules: tuple[_Blockers, ...], policy: MaintenancePolicy, site: Site
) -> Iterator[Blocker]:
    """Yield the blockers of a site by some rules, in their order."""
    for each in rules:
        yield from each(policy, site)


def depends_on_waves(policy: MaintenancePolicy) -> bool:
    """Whether the times of a wave depend on which VMs earlier waves disturb."""
    return owner_rest.depends_on_waves(policy)
