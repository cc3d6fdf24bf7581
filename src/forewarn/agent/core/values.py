"""Values: the stimuli that enter the agent's core, and the intents that it returns."""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from forewarn.agent.core.rules import PreparationStep
    from forewarn.protocol.documents import Document, ScheduledEvent


# ---- stimuli: inputs of the core ---------------------------------------------------------------


class Stimulus(Value):
    """An input of the core, which decides only when it gets one."""

    __slots__ = ()


class TimePassed(Stimulus):
    """Time has passed; pass this at `AgentEngine.next_deadline()`."""

    __slots__ = ()


class DocumentPolled(Stimulus):
    """A document was read; a failed poll is not a stimulus, because it has no information."""

    __slots__ = ("document",)
    document: Final[Document]

    def __init__(self, document: Document) -> None:
        """Set the document, unchanged."""
        self.document = document


class HookEnded(Stimulus):
    """A hook that the core requested (`Prepare`, `Check`, `Recover`, `Cancel`) has ended."""

    __slots__ = ("exit_status", "key", "reason")
    key: Final[str]
    exit_status: Final[int]
    reason: Final[str]

    def __init__(self, key: str, exit_status: int, *, reason: str = "") -> None:
        """Set the hook and its result.

        Args:
            key: `intent.key` of the hook's intent.
            exit_status: 0 to 255; negative: killed by that signal, or never started.
            reason: A short reason for people, such as "timeout".
        """
        self.key = key
        self.exit_status = exit_status
        self.reason = reason


class ApprovalEnded(Stimulus):
    """The service answered an `Approve`, or could not be reached."""

    __slots__ = ("accepted", "event_id", "reason")
    event_id: Final[str]
    accepted: Final[bool]
    reason: Final[str]

    def __init__(self, event_id: str, *, accepted: bool, reason: str = "") -> None:
        """Set the event, and whether its approval was answered 200."""
        self.event_id = event_id
        self.accepted = accepted
        self.reason = reason


PEER_WORDS = ("prepared", "unprepared", "deciding")
"""States that a VM reports about an event; a VM that does not answer has none of them."""


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
        """Set the states; the VMs are resource names, in any order.

        Args:
            event_id: The event.
            prepared: The VMs that are prepared for the event.
            unprepared: The VMs that answer that they are not prepared; silent VMs are in neither.
            deciding: The VMs that hold the event, or have not decided yet; the approval is theirs.
        """
        self.event_id = event_id
        self.prepared = prepared
        self.unprepared = unprepared
        self.deciding = deciding


class PersonAsked(Stimulus):
    """An operator's request about steps that could not be undone: `undo` at once, or `forget`."""

    __slots__ = ("name", "verb")
    verb: Final[str]
    name: Final[str]

    def __init__(self, verb: str, name: str) -> None:
        """Set the verb, and the name of a step or the id of an event."""
        self.verb = verb
        self.name = name


class Resumed(Stimulus):
    """The first stimulus after a restart with an earlier journal.

    `states` contains the current state of the hooks that were running according to the journal:
    `never` (did not begin), `running` (a `HookEnded` will follow), `interrupted` (began and was
    killed), or the exit status as decimal digits. A missing key counts as `interrupted`. The states
    must refer to the runs in `AgentEngine.running()`, not to earlier hooks of the same key.
    """

    __slots__ = ("found", "rebooted")
    found: Final[Mapping[str, str]]
    rebooted: Final[bool]

    def __init__(self, states: Mapping[str, str], *, rebooted: bool = False) -> None:
        """Set the state of the hooks, by key, and whether the VM itself was restarted."""
        self.found = states
        self.rebooted = rebooted

    def __hash__(self) -> int:
        """Hash the states, independent of the mapping's type."""
        return hash((tuple(sorted(self.found.items())), self.rebooted))


# ---- intents: actions for the runner -----------------------------------------------------------


class Intent(Value):
    """An action for the runner, which must first write the journal."""

    __slots__ = ()


class HookIntent(Intent):
    """Start a hook; a `HookEnded` with the same key always follows."""

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
            key: The hook's key in `HookEnded` and `Stop`.
            step: The step of the hook.
            event: The event of the hook.
            deadline_ms: The end of the hook's time, ms since the epoch, passed to the hook; the
                core sends `Stop` then.
            attempt: Number of the attempt, from 1.
            run: A unique number within the journal, so that files of an earlier hook with the same
                key are not mistaken for this one's.
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
    """Stop a running hook, first with a signal that it can handle; `HookEnded` follows."""

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
    """Announce to the event's other VMs whether this VM is prepared; no answer follows."""

    __slots__ = ("event", "holds", "prepared")
    event: Final[ScheduledEvent]
    prepared: Final[bool]
    holds: Final[bool]

    def __init__(self, event: ScheduledEvent, *, prepared: bool, holds: bool = False) -> None:
        """Set the event and the new state; `prepared=False` withdraws an earlier True.

        Args:
            event: The event.
            prepared: Whether this VM is prepared for it.
            holds: Whether this VM has decided not to approve, so that no other VM approves in its
                place.
        """
        self.event = event
        self.prepared = prepared
        self.holds = holds


class AskPeersIntent(Intent):
    """Ask which VMs of the event are prepared; `PeersSeen` follows, or nothing."""

    __slots__ = ("event", "names")
    event: Final[ScheduledEvent]
    names: Final[tuple[str, ...]]

    def __init__(self, event: ScheduledEvent, names: tuple[str, ...]) -> None:
        """Set the event, and the resources to ask."""
        self.event = event
        self.names = names


class NotifyIntent(Intent):
    """Notify people and logs: one sentence per change, with a stable name."""

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
