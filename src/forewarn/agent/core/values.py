"""Values: the stimuli that enter the agent's core, and the intents that it returns."""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from forewarn.agent.core.rules import PreparationStep
    from forewarn.protocol.documents import Document, ScheduledEvent


# ---- stimuli: inputs of the core ---------------------------------------------------------------


class Stimulus(Value):
    """An input of the core."""

    __slots__ = ()


class TimePassed(Stimulus):
    """The passage of time; the runner passes this at `AgentEngine.next_deadline()`."""

    __slots__ = ()


class DocumentPolled(Stimulus):
    """A successful poll of the document."""

    __slots__ = ("document",)
    document: Final[Document]

    def __init__(self, document: Document) -> None:
        """Set the document."""
        self.document = document


class HookEnded(Stimulus):
    """The end of a hook that the core requested."""

    __slots__ = ("exit_status", "key", "reason")
    key: Final[str]
    exit_status: Final[int]
    reason: Final[str]

    def __init__(self, key: str, exit_status: int, *, reason: str = "") -> None:
        """Set the hook and its result.

        Args:
            key: `intent.key` of the hook's intent.
            exit_status: 0 to 255; negative after a kill by a signal or a failed start.
            reason: A short reason for people, such as "timeout".
        """
        self.key = key
        self.exit_status = exit_status
        self.reason = reason


class ApprovalEnded(Stimulus):
    """The result of an approval: an answer, or an unreachable service."""

    __slots__ = ("accepted", "event_id", "reason")
    event_id: Final[str]
    accepted: Final[bool]
    reason: Final[str]

    def __init__(self, event_id: str, *, accepted: bool, reason: str = "") -> None:
        """Set the event, and whether the answer to its approval was 200."""
        self.event_id = event_id
        self.accepted = accepted
        self.reason = reason


PEER_WORDS = ("prepared", "unprepared", "deciding")
"""States that a VM reports about an event."""


class PeersSeen(Stimulus):
    """The answers to an `AskPeersIntent`: the state of each VM that answered."""

    __slots__ = ("deciding", "event_id", "prepared", "unprepared")
    event_id: Final[str]
    prepared: Final[tuple[str, ...]]
    unprepared: Final[tuple[str, ...]]
    deciding: Final[tuple[str, ...]]

    def __init__(
        self,
        event_id: str,
        prepared: tuple[str, ...],
        *,
        unprepared: tuple[str, ...] = (),
        deciding: tuple[str, ...] = (),
    ) -> None:
        """Set the VMs of each state, as resource names in any order.

        Args:
            event_id: The event.
            prepared: The VMs that are prepared for the event.
            unprepared: The VMs that reported that they are not prepared; excludes silent VMs.
            deciding: The VMs that hold the event, or are undecided; these VMs decide about the
                approval.
        """
        self.event_id = event_id
        self.prepared = prepared
        self.unprepared = unprepared
        self.deciding = deciding


class PersonAsked(Stimulus):
    """An operator's request to `undo` at once, or `forget`, steps that could not be undone."""

    __slots__ = ("name", "verb")
    verb: Final[str]
    name: Final[str]

    def __init__(self, verb: str, name: str) -> None:
        """Set the verb, and the name of a step or the id of an event."""
        self.verb = verb
        self.name = name


class Resumed(Stimulus):
    """The first stimulus after a start with an earlier journal.

    `states` contains the state of each hook in `AgentEngine.running()`: `never` (did not begin),
    `running` (a `HookEnded` will follow), `interrupted` (began and was killed), or the exit status
    as decimal digits. A missing key counts as `interrupted`. Each state must belong to the same run
    of the hook.
    """

    __slots__ = ("found", "rebooted")
    found: Final[Mapping[str, str]]
    rebooted: Final[bool]

    def __init__(self, states: Mapping[str, str], *, rebooted: bool = False) -> None:
        """Set the states of hooks by key, and whether the VM was restarted."""
        self.found = states
        self.rebooted = rebooted

    def __hash__(self) -> int:
        """Hash the states, independent of the mapping's type."""
        return hash((tuple(sorted(self.found.items())), self.rebooted))


# ---- intents: actions for the runner -----------------------------------------------------------


class Intent(Value):
    """An action for the runner; the runner must write the journal before the action."""

    __slots__ = ()


class HookIntent(Intent):
    """Start a hook; the runner always answers with a `HookEnded` of the same key."""

    __slots__ = ("attempt", "deadline_ms", "event", "key", "run", "step")
    key: Final[str]
    step: Final[PreparationStep]
    event: Final[ScheduledEvent]
    deadline_ms: Final[int]
    attempt: Final[int]
    run: Final[int]
    phase = ""

    def __init__(
        self,
        key: str,
        step: PreparationStep,
        *,
        event: ScheduledEvent,
        deadline_ms: int,
        attempt: int,
        run: int,
    ) -> None:
        """Describe the hook to start.

        Args:
            key: The hook's key in `HookEnded` and `StopIntent`.
            step: The step of the hook.
            event: The event of the hook.
            deadline_ms: The hook's deadline, ms since the epoch, at which the core returns a
                `StopIntent`.
            attempt: Number of the attempt, from 1.
            run: A unique number within the journal, which distinguishes the files of hooks with the
                same key.
        """
        self.key = key
        self.step = step
        self.event = event
        self.deadline_ms = deadline_ms
        self.attempt = attempt
        self.run = run


class PrepareIntent(HookIntent):
    """Start a prepare hook."""

    __slots__ = ()
    phase = "prepare"


class CheckIntent(HookIntent):
    """Ask an approve hook whether the event may be approved now."""

    __slots__ = ()
    phase = "approve"


class RecoverIntent(HookIntent):
    """Undo a step after the event has ended."""

    __slots__ = ()
    phase = "recover"


class CancelIntent(HookIntent):
    """Undo a step because the event was cancelled, or its preparation was aborted."""

    __slots__ = ()
    phase = "cancel"


class StopIntent(Intent):
    """Stop a running hook, first with SIGTERM; `HookEnded` follows."""

    __slots__ = ("key", "reason")
    key: Final[str]
    reason: Final[str]

    def __init__(self, key: str, reason: str) -> None:
        """Set the hook's key, and the reason to stop it."""
        self.key = key
        self.reason = reason


class ApproveIntent(Intent):
    """Send a StartRequest for the event; `ApprovalEnded` follows. Safe to repeat (A-1)."""

    __slots__ = ("event",)
    event: Final[ScheduledEvent]

    def __init__(self, event: ScheduledEvent) -> None:
        """Set the event to approve."""
        self.event = event


class AnnounceIntent(Intent):
    """Announce to the event's other VMs whether this VM is prepared."""

    __slots__ = ("event", "holds", "prepared")
    event: Final[ScheduledEvent]
    prepared: Final[bool]
    holds: Final[bool]

    def __init__(self, event: ScheduledEvent, *, prepared: bool, holds: bool = False) -> None:
        """Set the event and the announced state.

        Args:
            event: The event.
            prepared: Whether this VM is prepared; False withdraws an earlier announcement.
            holds: Whether this VM has decided not to approve; other VMs then do not approve
                instead.
        """
        self.event = event
        self.prepared = prepared
        self.holds = holds


class AskPeersIntent(Intent):
    """Ask which VMs of the event are prepared; `PeersSeen` follows if a VM answers."""

    __slots__ = ("event", "names")
    event: Final[ScheduledEvent]
    names: Final[tuple[str, ...]]

    def __init__(self, event: ScheduledEvent, names: tuple[str, ...]) -> None:
        """Set the event, and the resources to ask."""
        self.event = event
        self.names = names


class NotifyIntent(Intent):
    """Notify people and write to the log: one sentence per change, with a stable action name."""

    __slots__ = ("action", "event", "level", "text")
    action: Final[str]
    event: Final[ScheduledEvent]
    text: Final[str]
    level: Final[str]

    def __init__(
        self, action: str, event: ScheduledEvent, *, text: str, level: str = "info"
    ) -> None:
        """Set the event, the sentence, and `info`, `warning` or `error`."""
        self.action = action
        self.event = event
        self.text = text
        self.level = level
