"""Queries on a control plane, active or following; on any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from forewarn.control.entry_log import CommitListeners
from forewarn.control.inbox import Inbox
from forewarn.control.refused_records import RefusedRecords
from forewarn.control.replica import StateReplica
from forewarn.core.access import Principal
from forewarn.replication.messages import NodeTroubles
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from forewarn.audit_chain import CallRecord
    from forewarn.clock import Clock
    from forewarn.control.plane import StateView
    from forewarn.control.service_state import ServiceStatus
    from forewarn.core.access import AccessToken
    from forewarn.planning.blockers import Blocker
    from forewarn.replication.messages import VmPoll

T = TypeVar("T")


@value
class Freshness:
    """The age of a state; answers to reads are at least this new."""

    #: Number of the state's last commit.
    generation: int
    #: When the state was the newest, by elapsed time in ms.
    as_of_ms: int


class ReadableControl:
    """The part of a control plane that active processes and followers share."""

    def __init__(self, clock: Clock, status: ServiceStatus, *, decides: bool) -> None:
        """Start without a copy; `decides`: this process makes the commits, and logs them."""
        #: The service's time.
        self.clock = self._clock = clock
        self._status = status
        self._inbox = Inbox(status)
        self.replica = StateReplica(self._inbox, status)
        #: Whether this process makes the commits.
        self.decides = decides
        #: Called for each commit, once it can be read.
        self.on_committed = CommitListeners(self.replica.look, logged=decides)
        self.refused_records = RefusedRecords(clock)
        #: Return a VM's last poll, and the number of polling VMs by client; set by the service.
        self.poll_of: Callable[[str], VmPoll | None] = lambda _: None
        self.user_agents: Callable[[], Mapping[str, int]] = dict
        self.node_troubles: Callable[[], NodeTroubles] = NodeTroubles  # set by the service
        #: Returns whether another process may have had a newer state for longer than a term.
        self.lapsed: Callable[[], bool] = lambda: False

    @property
    def view(self) -> StateView | None:
        """The state of the owning thread, for table look-ups only; None: no state."""
        raise NotImplementedError

    @property
    def word(self) -> str:
        """The state of the service, or `standby`, in a word."""
        raise NotImplementedError

    @property
    def trouble(self) -> str:
        """Why this process cannot answer for the newest state; empty while it can."""
        raise NotImplementedError

    @property
    def shows(self) -> bool:
        """Whether changes can be sent to metadata nodes."""
        return True

    def freshness(self) -> Freshness:
        """Return how new the answers to the next queries will be."""
        raise NotImplementedError

    def age_ms(self, fresh: Freshness) -> int:
        """Return how long ago a state was the newest, in ms."""
        return max(self._clock.elapsed_ms() - fresh.as_of_ms, 0)

    def token(self, token_id: str) -> AccessToken | None:
        """Return a token by its id."""
        view = self.view
        return view.state.tokens.get(token_id) if view else None

    def principal(self, name: str) -> Principal:
        """Return a principal with its bindings, or None."""
        view = self.view
        return (view and view.state.principals.get(name)) or Principal(name)

    @property
    def has_principals(self) -> bool:
        """Whether callers are served."""
        view = self.view
        return view is not None and bool(view.state.tokens or view.state.principals)

    def read(self, query: Callable[[StateView], T]) -> Future[T]:
        """Run a query on the thread that owns the state, while it does not change."""
        return self._inbox.read(query)

    def why(self, number: int) -> Future[tuple[Blocker, ...]]:
        """Return all blockers of a live operation; empty if it has ended or never existed."""
        now = self._clock.now_ms
        return self.replica.read(lambda view: view.why(number, now()))

    def audit(self, call: CallRecord) -> None:
        """Record a call that was refused or changed nothing."""
        raise NotImplementedError
