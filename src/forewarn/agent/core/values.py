"""What goes into the agent's core and what comes out of it: stimuli and intents, as values."""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from forewarn.agent.core.rules import PreparationStep
    from forewarn.protocol.documents import Document, ScheduledEvent


# ---- stimuli: what happened --------------------------------------------------------------------


class Stimulus(Value):
    """Something that happened; the only way to make the core decide."""

    __slots__ = ()


class TimePassed(Stimulus):
    """Nothing happened but time; give it at `AgentEngine.next_deadline()`."""

    __slots__ = ()


class DocumentPolled(Stimulus):
    """A document was read. A failed poll is not a stimulus: it says nothing about events."""

    __slots__ = ("document",)
    document: Final[Document]

    def __init__(self, document: Document) -> None:
        """Carry the document as it was read."""
        self.document = document


class HookEnded(Stimulus):
    """A hook the core asked for (`Prepare`, `Check`, `Recover`, `Cancel`) is no longer running."""

    __slots__ = ("exit_status", "key", "reason")
    key: Final[str]
    exit_status: Final[int]
    reason: Final[str]

    def __init__(self, key: str, exit_status: int, *, reason: str = "") -> None:
        """Name the hook by the `key` of its intent.

        Args:
            key: `intent.key` of the intent that asked for it.
            exit_status: 0 to 255; negative: ended by that signal, or never started.
            reason: A few words for people, such as "timeout".
        """
        self.key = key
        self.exit_status = exit_status
        self.reason = reason


class ApprovalEnded(Stimulus):
    """The service answered an `Approve`, or could not be reached for it."""

    __slots__ = ("accepted", "event_id", "reason")
    event_id: Final[str]
    accepted: Final[bool]
    reason: Final[str]

    def __init__(self, event_id: str, *, accepted: bool, reason: str = "") -> None:
        """Carry for one event whether the approval was answered 200."""
        self.event_id = event_id
        self.accepted = accepted
        self.reason = reason


PEER_WORDS = ("prepared", "unprepared", "deciding")
"""What a VM says of an event when it is asked; nothing, where it does not answer."""


class PeersSeen(Stimulus):
    """An `AskPeersIntent` was answered: which VMs say that they are prepared for the event."""

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
        """Name by their resource names, in any order, the VMs that said something.

        Args:
            event_id: The event.
            prepared: Those that are prepared for it.
            unprepared: Those that answer that they are not; one that is silent is in neither.
            deciding: Those that hold it, or have not decided yet: it is theirs to approve.
        """
        self.event_id = event_id
        self.prepared = prepared
        self.unprepared = unprepared
        self.deciding = deciding


class PersonAsked(Stimulus):
    """A person has a word to say on what could not be undone: `undo` at once, or `forget`."""

    __slots__ = ("name", "verb")
    verb: Final[str]
    name: Final[str]

    def __init__(self, verb: str, name: str) -> None:
        """Name a step, or an event by its id."""
        self.verb = verb
        self.name = name


class Resumed(Stimulus):
    """The agent is up again with an earlier journal; must be the first stimulus then.

    `found` holds the current state of the hooks that the journal calls running: `never`
    (did not begin), `running` (still does; its `HookEnded` will follow), `interrupted` (began and
    was cut off), or the exit status as decimal digits where it ended unseen. A key that is
    missing counts as `interrupted`. Be sure it is said of the run that `AgentEngine.running()`
    refers to, not of an earlier hook of the same key.
    """

    __slots__ = ("found", "rebooted")
    found: Final[Mapping[str, str]]
    rebooted: Final[bool]

    def __init__(self, states: Mapping[str, str], *, rebooted: bool = False) -> None:
        """Carry the state of the hooks, by key, and whether the VM itself was restarted."""
        self.found = states
        self.rebooted = rebooted

    def __hash__(self) -> int:
        """Hash the found ends, whatever mapping holds them."""
        return hash((tuple(sorted(self.found.items())), self.rebooted))


# ---- intents: actions for the shell to carry out -----------------------------------------------


class Intent(Value):
    """Something the runner must do now, after it has written the journal."""

    __slots__ = ()


class HookIntent(Intent):
    """Start a hook; it ends with a `HookEnded` of the same key, always."""

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
            key: Names it in `HookEnded` and `Stop`.
            step: Whose hook it is.
            event: The event it is for.
            deadline_ms: The end of its time, ms since the epoch, for it to know; the core itself
                asks to `Stop` it then.
            attempt: From 1; how often this hook was begun for this purpose.
            run: A number that no two intents of one journal share, so that what an earlier hook
                of the same key left behind is not taken for this one's.
        """
        self.key = key
        self.step = step
        self.event = event
        self.deadline_ms = deadline_ms
        self.attempt = attempt
        self.run = run


class PrepareIntent(HookIntent):
    """Begin a step of a preparation."""

    __slots__ = ()
    phase = "prepare"


class CheckIntent(HookIntent):
    """Ask a hook whether the event may be approved now."""

    __slots__ = ()
    phase = "approve"


class RecoverIntent(HookIntent):
    """Undo a step after the event has come and gone."""

    __slots__ = ()
    phase = "recover"


class CancelIntent(HookIntent):
    """Undo a step because the event will not come after all, or its preparation was aborted."""

    __slots__ = ()
    phase = "cancel"


class StopIntent(Intent):
    """End a running hook, politely at first; its `HookEnded` follows as for any other."""

    __slots__ = ("key", "reason")
    key: Final[str]
    reason: Final[str]

    def __init__(self, key: str, reason: str) -> None:
        """Name the hook by the key of its intent, and why it must end."""
        self.key = key
        self.reason = reason


class ApproveIntent(Intent):
    """Post a StartRequest for the event; answer with `ApprovalEnded`. Safe to repeat (A-1)."""

    __slots__ = ("event",)
    event: Final[ScheduledEvent]

    def __init__(self, event: ScheduledEvent) -> None:
        """Carry the event to approve."""
        self.event = event


class AnnounceIntent(Intent):
    """Announce to the other VMs of the event whether this one is prepared; nothing is answered."""

    __slots__ = ("event", "holds", "prepared")
    event: Final[ScheduledEvent]
    prepared: Final[bool]
    holds: Final[bool]

    def __init__(self, event: ScheduledEvent, *, prepared: bool, holds: bool = False) -> None:
        """Carry the event and its new state; False withdraws an earlier True.

        Args:
            event: The event.
            prepared: Whether this VM is prepared for it.
            holds: Whether it has decided not to approve it, so that nobody does in its place.
        """
        self.event = event
        self.prepared = prepared
        self.holds = holds


class AskPeersIntent(Intent):
    """Find out which VMs of the event are prepared; answer with `PeersSeen`, or never."""

    __slots__ = ("event", "names")
    event: Final[ScheduledEvent]
    names: Final[tuple[str, ...]]

    def __init__(self, event: ScheduledEvent, names: tuple[str, ...]) -> None:
        """Carry the event, and which of its Resources are asked."""
        self.event = event
        self.names = names


class NotifyIntent(Intent):
    """Notify people and logs: one sentence per change, with a stable name of what happened."""

    __slots__ = ("action", "event", "level", "text")
    action: Final[str]
    event: Final[ScheduledEvent]
    text: Final[str]
    level: Final[str]

    def __init__(
        self, action: str, event: ScheduledEvent, *, text: str, level: str = "info"
    ) -> None:
        """Carry the event, the sentence, and `info`, `warning` or `error`."""
        self.action = action
        self.event = event
        self.text = text
        self.level = level
