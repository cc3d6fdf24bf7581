"""What can be asked of the state: by the run loop of its own, by everybody else of a copy.

Nothing may be decided in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import admission
from forewarn.core.draft import Draft, Terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.core.admission import Waiting
    from forewarn.core.policy import Policy
    from forewarn.core.state import Changes, State
    from forewarn.core.topology import Topology
    from forewarn.store import Store


class StateView:
    """The state as of one commit. Not for several threads: one owns it."""

    def __init__(
        self, state: State, store: Store, policy: Policy, *, new_guid: Callable[[], str]
    ) -> None:
        """Look at a state.

        Args:
            state: what is true.
            store: where what has ended is found.
            policy: by which it is judged.
            new_guid: gives ids to what is only tried.
        """
        self.state = state
        self.store = store
        self.policy = policy
        #: Grows by one with each commit that has written something.
        self.sequence = store.generation
        self._new_guid = new_guid
        #: The fleet as other threads read it; None once it has changed.
        self._fleet: Topology | None = None

    def adopt(self, changes: Changes, sequence: int) -> None:
        """Make durable changes the truth, as of a commit; costs what they touch."""
        self.state.adopt(changes)
        self.sequence = sequence
        if changes.of_fleet or changes.topology is not None:
            self._fleet = None

    def fleet(self) -> Topology:
        """Return the fleet as it is, for other threads: a copy made once for each change of it."""
        if self._fleet is None:
            self._fleet = self.state.topology.copy()
        return self._fleet

    def why(self, number: int, now_ms: int, *, driver: str) -> tuple[Waiting, ...]:
        """Everything a live operation waits for; empty if it has ended or never was.

        `driver` is whom or what its driver waits for; empty while that works.
        """
        operation = self.state.operations.get(number)
        if operation is None:
            return ()
        return admission.why(self.draft(now_ms), operation, driver=driver)

    def draft(self, now_ms: int) -> Draft:
        """Return a draft to look at what is; nothing of it is kept."""
        return Draft(self.state, now_ms, Terms(self.policy, "", self._new_guid))
