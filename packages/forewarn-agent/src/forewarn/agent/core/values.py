"""Values: the stimuli that enter the agent's core, and the intents that it returns."""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.agent.core.rules import PreparationStep
    from forewarn_base.protocol.documents import Document, ScheduledEvent


# ---- stimuli: inputs of the core ---------------------------------------------------------------


class Stimulus(Value):
    """An input of the core."""


class TimePassed(Stimulus):
    """The passage of time; the runner passes this at `AgentCore.next_deadline()`."""


class DocumentPolled(Stimulus):
    """A successful poll of the document."""

    document: Document
    #: How far the service's clock, and so NotBefore, is ahead of `now_ms`. Source: C-11.
    ahead_ms: int = 0


class HookEnded(Stimulus):
    """The end of a hook that the core requested."""

    #: `intent.key` of the hook's intent.
    key: str
    #: 0 to 255; negative after a kill by a signal or a failed start.
    exit_status: int
    #: A short reason for people, such as "timeout".
    reason: str = ""


class ApprovalEnded(Stimulus):
    """The result of an approval: an answer, or an unreachable service."""

    event_id: str
    #: Whether the answer was 200.
    accepted: bool
    reason: str = ""


#: States that a VM reports about an event.
PEER_WORDS = ("prepared", "unprepared", "deciding")


class PeersSeen(Stimulus):
    """The answers to an `AskPeersIntent`: the VMs of each state, by resource name in any order."""

    event_id: str
    prepared: tuple[str, ...]
    #: The VMs that reported that they are not prepared; excludes silent VMs.
    unprepared: tuple[str, ...] = ()
    #: The VMs that hold the event, or are undecided; these VMs decide about the approval.
    deciding: tuple[str, ...] = ()


class PersonAsked(Stimulus):
    """An operator's request to `undo` at once, or `forget`, steps that could not be undone."""

    verb: str
    #: Name of a step, or id of an event.
    name: str


class Resumed(Stimulus):
    """The first stimulus after a start with an earlier journal.

    `states` contains the state of each hook in `AgentCore.running()`: `never` (did not begin),
    `running` (a `HookEnded` will follow), `interrupted` (began and was killed), or the exit status
    as decimal digits. A missing key counts as `interrupted`. Each state must belong to the same run
    of the hook.
    """

    states: Mapping[str, str]
    #: Whether the VM was restarted.
    rebooted: bool = False

    def __hash__(self) -> int:
        """Hash the states, independent of the mapping's type."""
        return hash((tuple(sorted(self.states.items())), self.rebooted))


# ---- intents: actions for the runner -----------------------------------------------------------


class Intent(Value):
    """An action for the runner; the runner must write the journal before the action."""


class HookIntent(Intent):
    """Start a hook; the runner always answers with a `HookEnded` of the same key."""

    #: The hook's key in `HookEnded` and `StopIntent`.
    key: str
    step: PreparationStep
    event: ScheduledEvent
    #: The hook's deadline, ms since the epoch, at which the core returns a `StopIntent`.
    deadline_ms: int
    #: Number of the attempt, from 1.
    attempt: int
    #: A unique number within the journal, which distinguishes the files of hooks with one key.
    run: int
    phase = ""


class PrepareIntent(HookIntent):
    """Start a prepare hook."""

    phase = "prepare"


class CheckIntent(HookIntent):
    """Ask an approve hook whether the event may be approved now."""

    phase = "approve"


class RecoverIntent(HookIntent):
    """Undo a step after the event has ended."""

    phase = "recover"


class CancelIntent(HookIntent):
    """Undo a step because the event was cancelled, or its preparation was aborted."""

    phase = "cancel"


class StopIntent(Intent):
    """Stop a running hook, first with SIGTERM; `HookEnded` follows."""

    key: str
    reason: str


class ApproveIntent(Intent):
    """Send a StartRequest for the event; `ApprovalEnded` follows. Safe to repeat (A-1)."""

    event: ScheduledEvent


class AnnounceIntent(Intent):
    """Announce to the event's other VMs whether this VM is prepared."""

    event: ScheduledEvent
    #: Whether this VM is prepared; False withdraws an earlier announcement.
    prepared: bool
    #: Whether this VM has decided not to approve; other VMs then do not approve instead.
    holds: bool = False


class AskPeersIntent(Intent):
    """Ask which VMs of the event are prepared; `PeersSeen` follows if a VM answers."""

    event: ScheduledEvent
    #: The resources to ask.
    names: tuple[str, ...]


class NotifyIntent(Intent):
    """Notify people and write to the log: one sentence per change, with a stable action name."""

    action: str
    event: ScheduledEvent
    text: str
    #: `info`, `warning` or `error`.
    level: str = "info"
