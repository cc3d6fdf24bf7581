"""A rank's part in a round: what its main thread may do at a step, and its answers; pure.

The main thread calls `may_pass` with each step. While there is no notice, `step < gate` is all that
it needs to compare. Another thread passes the coordinator's messages; both hold one lock, except
for this comparison:

    rank.step = step          # main thread
    if step < rank.gate: ...  # passes without the lock

The other thread writes `gate` first and reads `step` afterwards. Either the main thread sees the
gate, or the other thread sees the step, and then moves the gate behind it. A gate that is reported
is therefore never passed before the decision.
"""

from __future__ import annotations

from forewarn.agent.json_fields import member

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.json_fields import Form

    Message = dict[str, object]

#: The gate of a rank without a notice.
FAR = 1 << 62

RUNNING = "running"
WAITING = "waiting"  # at its gate, until the decision
STOPPED = "stopped"  # at the agreed step, until the end of the notice

PASS = "pass"  # noqa: S105  a word, and no password
WAIT = "wait"
STOP = "stop"


class RankState:
    """The state of one rank of a job."""

    def __init__(self, job: str, rank: int, world: int, *, vms: int = 1) -> None:
        self.job = job
        self.rank = rank
        self.world = world
        self.vms = vms
        #: The last step that the main thread has passed or waits at.
        self.step = -1
        #: The step at which the main thread stands, or stood last.
        self.stood = -1
        #: The first step that the main thread may not pass without the lock.
        self.gate = FAR
        self.phase = RUNNING
        self.round = 0
        #: The step at which all ranks stop; None before the decision.
        self.decision: int | None = None
        #: Until when an acknowledgement counts, by this rank's clock.
        self.deadline_ms = 0
        self.event = ""
        self.vms_named: tuple[str, ...] = ()
        #: The checkpoint that this rank acknowledges.
        self.wanted = ""
        #: The job's acknowledged checkpoint; empty before.
        self.checkpoint = ""
        #: The answer to an acknowledgement that was refused.
        self.refusal: Form | None = None
        #: Why the last notice has ended: `over` or `late`.
        self.ended = ""

    def registration(self) -> Message:
        """Return the first message of a connection."""
        return {
            "do": "register",
            "job": self.job,
            "rank": self.rank,
            "world": self.world,
            "vms": self.vms,
            "stands": self.phase == STOPPED,
        }

    def may_pass(self, step: int) -> tuple[str, list[Message]]:
        """Return whether the main thread passes a step, waits or stops, with messages to send."""
        self.step = step
        if self.phase == STOPPED:
            return WAIT, []  # the notice has not ended
        if step < self.gate:
            self.phase = RUNNING
            return PASS, []
        if self.decision is None:
            self.phase = WAITING
            return WAIT, []
        if step < self.decision:
            self.phase = RUNNING
            return PASS, []
        self.phase = STOPPED
        self.stood = step
        self.checkpoint = self.ended = ""
        self.refusal = None
        return STOP, self._stop_report()

    def acknowledge(self, checkpoint: str) -> list[Message]:
        """Acknowledge the notice for the job; return the messages to send."""
        self.wanted = checkpoint
        self.refusal = None
        return self._acknowledgement() if self.phase == STOPPED else []

    def heard(self, message: Form, now_ms: int) -> list[Message]:
        """Process a message of the coordinator; return the answers."""
        word = member(message, "say", "")
        if word == "notice":
            self.round = member(message, "round", 0)
            self.decision = None
            self.deadline_ms = now_ms + member(message, "left_ms", 0)
            self.event = member(message, "event", "")
            named: list[str] = member(message, "vms", [])
            self.vms_named = tuple(named)
            self._shut_gate()
            return [{"do": "gate", "round": self.round, "step": self.gate}]
        if word == "stop" and message.get("round") == self.round:
            self.decision = self.gate = member(message, "step", 0)
            if self.phase == STOPPED and self.stood < self.decision:
                self.phase, self.wanted = RUNNING, ""  # another rank is ahead; go on to its step
            return self._stop_report() if self.phase == STOPPED else []
        if word == "acknowledged" and self.phase == STOPPED:
            self.checkpoint = member(message, "checkpoint", "")
        elif word == "refused":
            self.refusal = message
        elif word == "resume":
            self.resume(member(message, "why", "over"))
        return []

    def resume(self, why: str) -> None:
        """End the notice, so that the main thread goes on."""
        self.ended = why
        self.phase = RUNNING
        self.gate = FAR
        self.decision = None
        self.wanted = ""

    def disconnected(self) -> None:
        """End the round; a rank that stands at its checkpoint remains there."""
        self.decision = None
        if self.phase != STOPPED:
            self.phase = RUNNING
            self.gate = FAR

    def _shut_gate(self) -> None:
        """Set the gate to the first step that the main thread has not passed.

        The main thread may pass further steps meanwhile, so the gate is checked after it is set.
        """
        if self.phase != RUNNING:  # the main thread has not passed this step
            self.gate = self.stood if self.phase == STOPPED else self.step
            return
        self.gate = self.step + 1
        while self.step >= self.gate:  # the main thread has passed meanwhile
            self.gate = self.step + 1

    def _stop_report(self) -> list[Message]:
        report: Message = {"do": "stopped", "round": self.round, "step": self.stood}
        return [report, *self._acknowledgement()]

    def _acknowledgement(self) -> list[Message]:
        if not self.wanted:
            return []
        form = {"round": self.round, "step": self.stood, "checkpoint": self.wanted}
        return [{"do": "acknowledge", **form}]
