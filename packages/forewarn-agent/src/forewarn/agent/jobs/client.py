"""Job: a rank's side of a job; applications import it as `forewarn.job`.

A thread of the rank follows the coordinator, so that `Job.poll` compares two numbers while there is
no notice. If the agent does not answer, the rank works as without it, and the thread tries again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Self

from forewarn.agent.jobs import rank as ranks
from forewarn.agent.jobs.coordinator import (
    CHECKPOINT_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    RANKS_MAX,
    STEP_MAX,
)
from forewarn.agent.jobs.rank import RankState
from forewarn.agent.jobs.wire import LineInvalid, LineReader, connect, is_path, line_of, proof
from forewarn.agent.json_fields import FieldInvalid
from forewarn.agent.value import Value
from forewarn_base.clock import SystemClock
from forewarn_base.errors import ArgumentInvalid, CallerError, reason_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from types import TracebackType

ADDRESS = "/run/forewarn-agent/jobs.sock"
REGISTER_S = 10.0  # longest wait of `Job` for the answer to its registration
SEND_S = (
    5.0  # longest wait for the agent to accept a message; also the interval of looks at `close`
)
ALONE_MS = 60_000  # time after which a rank without an agent leaves its checkpoint
PAUSE_S = 0.1  # pause before the next connection, doubled after each failure
PAUSE_S_MAX = 2.0
CHUNK_BYTES = 16 * 1024
#: Refusals of a registration while the agent has not noticed the end of an earlier process.
RETRIED = ("rank-taken", "world-differs")


class JobRefused(CallerError):
    """The agent refused to register a rank."""

    code = "job-refused"
    message = "Rank {rank} of job {job} cannot register at {address}: {reason}."
    advice = "Correct the registration, or the agent's [jobs] settings."


class NotAcknowledged(CallerError):
    """An acknowledgement does not count; no VM approves because of it."""

    code = "job-not-acknowledged"
    status = 409
    message = "Checkpoint {checkpoint} of job {job} does not count as consent: {reason}."
    advice = "Go on with the job; the work starts at its NotBefore."


class JobNotice(Value):
    """A notice at the step at which all ranks of the job stop."""

    #: Id of the event.
    event: str
    #: The VMs that the event will disturb, by resource name.
    vms: tuple[str, ...]
    #: The step at which all ranks stop.
    step: int
    #: Until when an acknowledgement counts, seconds since the epoch UTC.
    deadline: float


class Job:
    """One rank of a job that stops and checkpoints before scheduled events.

    A rank calls `poll` at each step. A notice means that all ranks stop at this step. The job saves
    a checkpoint, and one rank acknowledges it; the next `poll` returns after the event:

        with Job("train", rank=rank, world=world) as job:
            for step in range(first, last):
                if job.poll(step):
                    save(step)
                    if rank == 0:
                        job.acknowledge(checkpoint=f"step-{step}")
                train(step)

    Source: J-1.
    """

    def __init__(
        self,
        name: str,
        *,
        rank: int = 0,
        world: int = 1,
        vms: int = 1,
        address: str = "",
        token_file: str = "",
    ) -> None:
        """Register a rank with the agent; wait for its answer for at most `REGISTER_S`.

        Args:
            name: Name of the job, the same for all ranks.
            rank: Number of this rank, from 0.
            world: Number of ranks.
            vms: Number of VMs of the job.
            address: The agent's `[jobs] listen`; by default FOREWARN_JOB_ADDRESS, then `ADDRESS`.
            token_file: File with the agent's token, for an address with a port; by default
                FOREWARN_JOB_TOKEN_FILE.

        Raises:
            ArgumentInvalid: an argument is out of range.
            JobRefused: the agent refuses the rank.
        """
        _check("name", name, 0 < len(name) <= NAME_CHARACTERS_MAX, "a name of a job")
        _check("world", world, 0 < world <= RANKS_MAX, f"1 to {RANKS_MAX}")
        _check("rank", rank, 0 <= rank < world, f"0 to {world - 1}")
        self._address = address or os.environ.get("FOREWARN_JOB_ADDRESS") or ADDRESS
        self._token_file = token_file or os.environ.get("FOREWARN_JOB_TOKEN_FILE") or ""
        self._state = RankState(name, rank, world, vms=vms)
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._connection: socket.socket | None = None
        self._registered = threading.Event()
        self._closing = threading.Event()
        self._refused = ""
        self._lost_ms = self._clock.now_ms()
        #: Why this rank is not registered now; empty if it is.
        self.trouble = ""
        _OPEN.add(self)
        threading.Thread(target=self._follow, name="forewarn-job", daemon=True).start()
        self._registered.wait(REGISTER_S)
        if self._refused:
            self._closing.set()
            raise JobRefused(job=name, rank=rank, address=self._address, reason=self._refused)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Register as torchrun, Slurm or Open MPI describes this process.

        FOREWARN_JOB names the job; by default it is the id of the torchrun or Slurm job.
        """
        known = os.environ if environment is None else environment
        rank, world = _number(known, RANK, 0), _number(known, WORLD, 1)
        local = _number(known, LOCAL_WORLD, world)
        vms = _number(known, ("FOREWARN_JOB_VMS", "SLURM_NNODES"), -(-world // max(1, local)))
        names = (known.get(key) for key in NAMES)
        name = next((text for text in names if text), "job")
        return cls(name, rank=rank, world=world, vms=vms)

    def poll(self, step: int | None = None) -> JobNotice | None:
        """Return the notice if all ranks stop at this step, or None to go on.

        Call this once per step, at the same place in all ranks, with increasing steps. Without
        `step`, the calls count the steps. While ranks agree on the step, a call waits, at most
        until the deadline. After a notice, the call waits until the event is over.
        """
        state = self._state
        if step is None:
            step = state.step + 1
        state.step = step
        if step < state.gate:
            return None
        return self._at_gate(step)

    def acknowledge(self, checkpoint: str) -> None:
        """Consent for the whole job: the checkpoint is durable, and the work may start.

        One rank calls this after `poll` has returned a notice; it returns once all ranks have
        stopped and the consent is durable. The same checkpoint may be acknowledged again.

        Raises:
            NotAcknowledged: the consent came after the deadline, or the job acknowledged another
                checkpoint, or a rank was lost. No VM approves because of this call.
        """
        text = str(checkpoint)
        fits = 0 < len(text) <= CHECKPOINT_CHARACTERS_MAX and text.isprintable()
        _check("checkpoint", text, fits, f"1 to {CHECKPOINT_CHARACTERS_MAX} printable characters")
        state = self._state
        with self._changed:
            self._send(state.acknowledge(text))
            while True:
                reason = self._obstacle(text)
                if reason == "":
                    return
                if reason is None and not self._wait_for_change():
                    reason = "the deadline has passed without an answer"
                if reason:
                    raise NotAcknowledged(checkpoint=text, job=state.job, reason=reason)

    def wait(self) -> str:
        """Wait for the end of the notice: `over`, or `late` if the job has not consented in time.

        `again` means that the round has ended because a rank was lost: go on with the job.
        """
        with self._changed:
            while self._state.phase == ranks.STOPPED:
                if not self._wait_for_change():
                    self._state.resume("late")
            return self._state.ended or "again"

    @property
    def notified(self) -> bool:
        """Whether a notice has arrived for which this rank has not stopped yet, or stands."""
        return self._state.gate != ranks.FAR

    @property
    def deadline(self) -> float:
        """Until when an acknowledgement of the last notice counts, seconds since the epoch UTC."""
        return (self._state.deadline_ms + self._clock.off_ms()) / 1000

    @property
    def state(self) -> str:
        """`running`, `waiting` (for the agreement on a step) or `stopped` (at a notice)."""
        return self._state.phase

    def close(self) -> None:
        """End this rank's part in the job; the other ranks stop without it.

        Without this call, a rank that ends counts as lost, and the job cannot consent.
        """
        with self._changed:
            self._closing.set()
            self._send([{"do": "leave"}])
            self._disconnect()
            self._state.resume("over")
            self._changed.notify_all()
        _OPEN.discard(self)

    def __enter__(self) -> Self:
        """Return the job."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the job; after an exception, this rank counts as lost."""
        if kind is None:
            self.close()
        else:
            self._abandon()

    # ---- the main thread -----------------------------------------------------------------------

    def _at_gate(self, step: int) -> JobNotice | None:
        _check("step", step, 0 <= step <= STEP_MAX, f"0 to {STEP_MAX}")
        state = self._state
        with self._changed:
            while True:
                verdict, messages = state.may_pass(step)
                self._send(messages)
                if verdict == ranks.PASS:
                    return None
                if verdict == ranks.STOP:
                    return JobNotice(
                        state.event, state.vms_named, step=step, deadline=self.deadline
                    )
                if not self._wait_for_change():
                    state.resume("late")

    def _wait_for_change(self) -> bool:
        """Wait for a message; return whether this rank still waits for the notice."""
        state = self._state
        until_ms = state.deadline_ms
        if state.phase == ranks.STOPPED and state.checkpoint:
            if self._connection is not None:
                self._changed.wait(SEND_S)
                return True
            until_ms = max(until_ms, self._lost_ms + ALONE_MS)
        left_s = (until_ms - self._clock.now_ms()) / 1000
        if left_s <= 0 or self._closing.is_set():
            return False
        self._changed.wait(left_s)
        return True

    def _obstacle(self, checkpoint: str) -> str | None:
        """Return why an acknowledgement cannot count, `""` if it counts, or None to wait."""
        state = self._state
        if state.phase != ranks.STOPPED:
            late = state.ended == "late"
            return "the deadline has passed" if late else "the ranks do not stand at one step"
        if state.checkpoint:
            same = state.checkpoint == checkpoint
            return "" if same else f"the job has acknowledged {state.checkpoint}"
        refusal = state.refusal
        if refusal is None or refusal.get("code") == "round-over":
            return None
        return str(refusal.get("reason", ""))

    # ---- the thread that follows the coordinator -----------------------------------------------

    def _follow(self) -> None:
        pause_s = PAUSE_S
        while not self._closing.is_set():
            try:
                token = _token(self._address, self._token_file)
                connection = connect(self._address, timeout_s=SEND_S)
            except (OSError, ValueError) as error:
                self.trouble = reason_of(error)
            else:
                try:
                    if self._converse(connection, token):
                        pause_s = PAUSE_S
                except (OSError, LineInvalid, FieldInvalid) as error:
                    self.trouble = reason_of(error)
                finally:
                    self._lose(connection)
            self._closing.wait(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _converse(self, connection: socket.socket, token: str) -> bool:
        """Follow the coordinator on a connection; return whether it accepted the rank."""
        reader = LineReader()
        registration = line_of(self._state.registration())
        if is_path(self._address):
            connection.sendall(registration)
        accepted = False
        while not self._closing.is_set():
            try:
                data = connection.recv(CHUNK_BYTES)
            except TimeoutError:
                continue
            if not data:
                self.trouble = "the agent has ended the connection"
                break
            for message in reader.feed(data):
                word = message.get("say")
                if word == "nonce" and not accepted:
                    answer = proof(token, str(message.get("nonce", "")))
                    connection.sendall(line_of({"do": "prove", "proof": answer}) + registration)
                elif word == "registered":
                    accepted = True
                    with self._changed:
                        self._connection = connection
                    self.trouble = ""
                    self._registered.set()
                elif word == "refused" and not accepted:
                    return self._registration_refused(message)
                else:
                    self._heard(message)
        return accepted

    def _registration_refused(self, message: Mapping[str, object]) -> bool:
        self.trouble = str(message.get("reason", ""))
        if message.get("code") not in RETRIED and not self._registered.is_set():
            self._refused = self.trouble
            self._closing.set()
            self._registered.set()
        return False

    def _heard(self, message: Mapping[str, object]) -> None:
        with self._changed:
            self._send(self._state.heard(message, self._clock.now_ms()))
            self._changed.notify_all()

    def _send(self, messages: list[dict[str, object]]) -> None:
        """Send messages; a connection that fails ends the round."""
        if self._connection is None:
            return
        with contextlib.suppress(OSError):
            self._connection.sendall(b"".join(map(line_of, messages)))

    def _lose(self, connection: socket.socket) -> None:
        with self._changed:
            if self._connection is connection:
                self._connection = None
                self._lost_ms = self._clock.now_ms()
                self._state.disconnected()
                self._changed.notify_all()
            connection.close()

    def _disconnect(self) -> None:
        """Wake the thread that follows the coordinator, which then ends."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(2)

    def _abandon(self) -> None:
        with self._changed:
            self._closing.set()
            self._disconnect()
        _OPEN.discard(self)

    def _close_in_child(self) -> None:
        """Give up the connection in a forked child, so that the agent sees the parent's end."""
        connection, self._connection = self._connection, None
        self._changed = threading.Condition()
        self._closing.set()
        self._state.resume("over")
        if connection is not None:
            connection.close()


#: The jobs of this process.
_OPEN: weakref.WeakSet[Job] = weakref.WeakSet()

RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
LOCAL_WORLD = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
#: Variables of torchrun, Slurm and Open MPI, the first that is set counts.
NAMES = ("FOREWARN_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


def _after_fork() -> None:
    for job in tuple(_OPEN):
        job._close_in_child()  # noqa: SLF001  the same module
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _number(known: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    texts = (known.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), default)


def _token(address: str, token_file: str) -> str:
    if is_path(address) or not token_file:
        return ""
    return Path(token_file).read_text("utf-8").strip()


def _check(name: str, value: object, fits: object, wanted: str) -> None:
    if not fits:
        raise ArgumentInvalid(name=name, wanted=wanted, found=value)
