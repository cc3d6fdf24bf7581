"""The coordinator of jobs: lets the ranks of a job stop at one step, and records consent; pure.

Theory of operation. A VM's preparation sends a *notice* for an event, and waits. The coordinator
then runs a *round* with each job:

1. It sends the notice to all ranks. Each rank answers with its *gate*: the first step that it
   promises not to pass before it hears the decision.
2. Once it has all gates, the coordinator decides: the ranks stop at the greatest gate. No rank can
   have passed that step, and every rank can reach it.
3. Each rank reports the step at which it stopped. One rank acknowledges with a checkpoint.
4. Once all ranks have stopped at the step, and before the deadline, the acknowledgement counts. It
   is durable before anybody hears of it. The preparations of the VMs then succeed.

A rank that disconnects or registers ends the round, and the next round begins once all ranks are
connected. An acknowledgement of an earlier round counts for nothing. After the deadline nothing
counts: the ranks go on, and the preparations ask to hold the event.

The caller passes messages, ends of connections and the time; it writes `form()` to disk when
`generation` has changed, and only then sends the returned messages.
"""

from __future__ import annotations

from forewarn.agent.json_fields import FieldInvalid, flag, inner, member, several, words

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.agent.json_fields import Form

    Message = dict[str, object]
    Sent = tuple[int, Message]

FORM_VERSION = 1
JOBS_MAX = 64
RANKS_MAX = 512  # of one job; 64 VMs with eight GPUs each
NOTICES_MAX = 64
NAME_CHARACTERS_MAX = 128
CHECKPOINT_CHARACTERS_MAX = 1024
STEP_MAX = 1 << 53  # the largest whole number that every reader of JSON knows
LOST_JOB_MS = 3_600_000  # a job without a rank and without a notice is forgotten after this time

IDLE = "idle"  # no round; the ranks run, or the job lacks a rank
GATHERING = "gathering"  # the coordinator waits for the gates
STOPPING = "stopping"  # the step is decided; the ranks run to it
ACKNOWLEDGED = "acknowledged"  # all ranks stand at their checkpoint


class Refusal(Exception):
    """A message is refused; the text is a stable code and a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class JobRank:
    """One process of a job."""

    __slots__ = ("connection", "gate", "left", "stopped")

    def __init__(self) -> None:
        self.connection: int | None = None
        self.gate: int | None = None
        self.stopped: int | None = None
        #: Whether the rank has finished its work, and takes part in no round.
        self.left = False


class RegisteredJob:
    """A registered job, with its round."""

    __slots__ = (
        *("acknowledged", "checkpoint", "holding", "late", "lost_ms", "missed", "name"),
        *("owner", "phase", "ranks", "round", "step", "world"),
    )

    def __init__(self, name: str, world: int, *, owner: str) -> None:
        self.name = name
        self.world = world
        #: The user who registered the job; only the same user may register further ranks.
        self.owner = owner
        self.ranks = [JobRank() for _ in range(world)]
        self.phase = IDLE
        self.round = 0
        #: The step at which the ranks of this round stop.
        self.step = 0
        #: The checkpoint of an acknowledgement that waits until all ranks have stopped.
        self.checkpoint = ""
        #: Notice -> the job's durable acknowledgement: checkpoint, step and time.
        self.acknowledged: dict[str, Form] = {}
        #: The notices whose deadline passed without the job's acknowledgement.
        self.late: set[str] = set()
        #: What the job waited for at the last such deadline.
        self.missed = ""
        #: Whether ranks may wait for the end of a notice.
        self.holding = False
        #: Time since when no rank is connected, ms since the epoch.
        self.lost_ms: int | None = None

    @property
    def active(self) -> list[JobRank]:
        """The ranks that take part in rounds."""
        return [rank for rank in self.ranks if not rank.left]

    def absent(self) -> list[int]:
        """Return the numbers of the ranks that are not connected."""
        pairs = enumerate(self.ranks)
        return [number for number, rank in pairs if not rank.left and rank.connection is None]

    def state(self) -> str:
        """Return what the job waits for, as a clause for people."""
        absent = self.absent()
        if absent:
            return f"job {self.name}: {_ranks(absent)} not connected"
        if self.phase == GATHERING:
            silent = [n for n, rank in enumerate(self.ranks) if not rank.left and rank.gate is None]
            return f"job {self.name}: {_ranks(silent)} silent"
        if self.phase == STOPPING:
            running = [
                n for n, rank in enumerate(self.ranks) if not rank.left and rank.stopped is None
            ]
            if running:
                return f"job {self.name}: {_ranks(running)} not at step {self.step} yet"
            return f"job {self.name}: stands at step {self.step} without an acknowledgement"
        return f"job {self.name}: {self.phase}"


class VmNotice:
    """An event for which a VM prepares."""

    __slots__ = ("connection", "deadline_ms", "event", "jobs", "key", "vm")

    def __init__(self, event: str, vm: str, *, deadline_ms: int, jobs: tuple[str, ...]) -> None:
        self.event = event
        self.vm = vm
        self.key = f"{event} {vm}"
        self.deadline_ms = deadline_ms
        #: The names of the jobs concerned; empty for all.
        self.jobs = jobs
        #: The preparation that waits for the answer.
        self.connection: int | None = None

    def concerns(self, job: RegisteredJob) -> bool:
        """Return whether a job must acknowledge the notice."""
        return not self.jobs or job.name in self.jobs


class Coordinator:
    """All jobs that are registered with one agent, and the notices for them."""

    def __init__(self, *, spans_vms: bool, form: Form | None = None, now_ms: int = 0) -> None:
        """Start empty, or with an earlier `form()`.

        `spans_vms` is whether ranks on other VMs can connect.

        Raises:
            FieldInvalid: another release wrote the form.
        """
        self._spans_vms = spans_vms
        self._jobs: dict[str, RegisteredJob] = {}
        self._notices: dict[str, VmNotice] = {}
        self._places: dict[int, tuple[RegisteredJob, JobRank]] = {}
        self._out: list[Sent] = []
        #: Number that grows with each change of `form()`.
        self.generation = 0
        if form is not None:
            self._read(form, now_ms)

    # ---- inputs --------------------------------------------------------------------------------

    def received(
        self, connection: int, message: Form, *, owner: str, trusted: bool, now_ms: int
    ) -> tuple[Sent, ...]:
        """Process a message and return the messages to send, in order.

        `owner` is the sender's user; `trusted` is whether the sender may send notices.
        """
        self._expire(now_ms)
        try:
            self._take(connection, message, owner=owner, trusted=trusted, now_ms=now_ms)
        except FieldInvalid as error:
            self._refuse(connection, "message-invalid", error.clause)
        except Refusal as refusal:
            self._refuse(connection, refusal.code, str(refusal))
        return self._settle(now_ms)

    def closed(self, connection: int, now_ms: int) -> tuple[Sent, ...]:
        """Process the end of a connection; return the messages to send."""
        self._expire(now_ms)
        for notice in self._notices.values():
            if notice.connection == connection:
                notice.connection = None
        place = self._places.pop(connection, None)
        if place is not None:
            job, rank = place
            rank.connection = None
            _end_round(job)
            if all(one.connection is None for one in job.ranks):
                job.lost_ms = now_ms
        return self._settle(now_ms)

    def time_passed(self, now_ms: int) -> tuple[Sent, ...]:
        """Process the passage of time; call this at `next_ms` at the latest."""
        self._expire(now_ms)
        return self._settle(now_ms)

    def next_ms(self) -> int | None:
        """Return when to call `time_passed`, ms since the epoch, or None."""
        times = [one.deadline_ms for job in self._jobs.values() for one in self._open(job)]
        if not self._notices:
            lost = (job.lost_ms for job in self._jobs.values())
            times += [lost_ms + LOST_JOB_MS for lost_ms in lost if lost_ms is not None]
        return min(times, default=None)

    def form(self) -> dict[str, object]:
        """Return the durable state, in JSON types: the jobs, their acknowledgements, notices."""
        jobs = [
            {
                "name": job.name,
                "world": job.world,
                "owner": job.owner,
                "left": [number for number, rank in enumerate(job.ranks) if rank.left],
                "acknowledged": dict(job.acknowledged),
                "late": sorted(job.late),
            }
            for job in self._jobs.values()
        ]
        notices = [
            {
                "event": one.event,
                "vm": one.vm,
                "deadline_ms": one.deadline_ms,
                "jobs": list(one.jobs),
            }
            for one in self._notices.values()
        ]
        return {"version": FORM_VERSION, "jobs": jobs, "notices": notices}

    @property
    def jobs(self) -> tuple[RegisteredJob, ...]:
        """The registered jobs, for status; read-only."""
        return tuple(self._jobs.values())

    # ---- messages ------------------------------------------------------------------------------

    def _take(
        self, connection: int, message: Form, *, owner: str, trusted: bool, now_ms: int
    ) -> None:
        verb = member(message, "do", "")
        if verb in ("notice", "over"):
            if not trusted:
                raise Refusal("not-permitted", "only the agent's user may send notices")
            event, vm = _text(message, "event"), _text(message, "vm")
            if verb == "notice":
                self._notice(connection, message, (event, vm), now_ms=now_ms)
            else:
                self._over(connection, f"{event} {vm}")
        elif verb == "register":
            self._register(connection, message, owner=owner)
        elif connection not in self._places:
            raise Refusal("not-registered", "the connection has not registered a rank")
        else:
            job, rank = self._places[connection]
            if verb == "leave":
                del self._places[connection]
                self._leave(job, rank)
            else:
                self._progress(job, rank, message, now_ms=now_ms)

    def _notice(
        self, connection: int, message: Form, names: tuple[str, str], *, now_ms: int
    ) -> None:
        left_ms = member(message, "left_ms", 0)
        fresh = VmNotice(
            *names,
            deadline_ms=now_ms + max(0, left_ms),
            jobs=tuple(words(message, "jobs")),
        )
        notice = self._notices.get(fresh.key)
        if notice is None:
            if len(self._notices) >= NOTICES_MAX:
                raise Refusal("too-many-notices", f"there are already {NOTICES_MAX} notices")
            notice = self._notices[fresh.key] = fresh
            self.generation += 1
        notice.connection = connection

    def _over(self, connection: int, key: str) -> None:
        if self._notices.pop(key, None) is not None:
            self.generation += 1
        for job in self._jobs.values():
            job.acknowledged.pop(key, None)
            job.late.discard(key)
        self._out.append((connection, {"say": "over"}))

    def _register(self, connection: int, message: Form, *, owner: str) -> None:
        number = member(message, "rank", -1)
        job = self._job_of(message, owner)
        rank = job.ranks[number]
        if connection in self._places:
            raise Refusal("registered-already", "the connection has registered a rank")
        if rank.connection is not None:
            raise Refusal("rank-taken", f"rank {number} of job {job.name} is connected")
        if rank.left:
            rank.left = False
            self.generation += 1
        rank.connection = connection
        self._places[connection] = job, rank
        job.lost_ms = None
        job.holding = job.holding or flag(message, "stands", default=False)
        _end_round(job)
        self._out.append((connection, {"say": "registered"}))
        for one in self._notices.values():
            if one.key in job.acknowledged:
                answer = {"say": "acknowledged", **job.acknowledged[one.key]}
                self._out.append((connection, answer))
                break

    def _job_of(self, message: Form, owner: str) -> RegisteredJob:
        """Return the job of a registration; create it for its first rank."""
        name = _text(message, "job")
        number, world = member(message, "rank", -1), member(message, "world", 0)
        vms = member(message, "vms", 1)
        if not 0 < world <= RANKS_MAX or not 0 <= number < world:
            reason = f"rank {number} of {world} is impossible; a job has 1 to {RANKS_MAX} ranks"
            raise Refusal("rank-invalid", reason)
        if vms > 1 and not self._spans_vms:
            reason = (
                f"job {name} spans {vms} VMs, whose agents cannot hear each other; it needs a "
                "rendezvous: [jobs] listen with an address, and that address for all ranks"
            )
            raise Refusal("rendezvous-missing", reason)
        job = self._jobs.get(name)
        if job is not None and job.owner != owner:
            raise Refusal("job-of-another-user", f"another user has registered job {name}")
        if job is not None and job.world == world:
            return job
        if job is not None and any(rank.connection is not None for rank in job.ranks):
            raise Refusal("world-differs", f"job {name} has {job.world} ranks, not {world}")
        return self._new_job(name, world, owner=owner)  # also for a new number of ranks

    def _new_job(self, name: str, world: int, *, owner: str) -> RegisteredJob:
        before = self._jobs.get(name)
        if before is None and len(self._jobs) >= JOBS_MAX:
            raise Refusal("too-many-jobs", f"there are already {JOBS_MAX} jobs")
        job = self._jobs[name] = RegisteredJob(name, world, owner=owner)
        if before is not None:
            job.acknowledged, job.late, job.round = before.acknowledged, before.late, before.round
        self.generation += 1
        return job

    def _leave(self, job: RegisteredJob, rank: JobRank) -> None:
        rank.left = True
        rank.connection = None
        rank.gate = rank.stopped = None
        self.generation += 1
        if not job.active:
            self._forget(job)

    def _progress(self, job: RegisteredJob, rank: JobRank, message: Form, *, now_ms: int) -> None:
        """Process a rank's report about a round; ignore reports about earlier rounds."""
        verb, step = member(message, "do", ""), member(message, "step", -1)
        if not 0 <= step <= STEP_MAX:
            raise Refusal("step-invalid", f"step {step} is not between 0 and {STEP_MAX}")
        current = member(message, "round", -1) == job.round
        if verb == "gate":
            if current and job.phase == GATHERING:
                rank.gate = step
        elif verb == "stopped":
            if current and job.phase == STOPPING and step != job.step:
                _end_round(job)  # the rank did not keep its promise
            elif current and job.phase == STOPPING:
                rank.stopped = step
        elif verb == "acknowledge":
            self._acknowledge(job, message, current=current, now_ms=now_ms)
        else:
            raise Refusal("message-invalid", f"there is no message {verb!r}")

    def _acknowledge(
        self, job: RegisteredJob, message: Form, *, current: bool, now_ms: int
    ) -> None:
        checkpoint = _text(message, "checkpoint", characters_max=CHECKPOINT_CHARACTERS_MAX)
        if not current or job.phase not in (STOPPING, ACKNOWLEDGED):
            if job.late and not self._open(job):
                reason = f"the deadline has passed; job {job.name} has not acknowledged"
                raise Refusal("too-late", reason)
            raise Refusal("round-over", f"the round of job {job.name} is over")
        if member(message, "step", -1) != job.step:
            raise Refusal("step-differs", f"job {job.name} stops at step {job.step}")
        if job.checkpoint not in ("", checkpoint):
            reason = f"job {job.name} has named checkpoint {job.checkpoint}"
            raise Refusal("acknowledged-already", reason)
        job.checkpoint = checkpoint
        if job.phase == ACKNOWLEDGED:  # a repetition
            self._broadcast(job, _consent(job, now_ms))

    # ---- consequences --------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> None:
        """Record the jobs that missed a deadline, and forget jobs that have vanished."""
        for job in tuple(self._jobs.values()):
            missed = {one.key for one in self._open(job) if now_ms >= one.deadline_ms}
            if missed:
                job.missed = job.state()
                job.late |= missed
                self.generation += 1
            gone = job.lost_ms is not None and now_ms >= job.lost_ms + LOST_JOB_MS
            if gone and not self._notices:
                self._forget(job)

    def _settle(self, now_ms: int) -> tuple[Sent, ...]:
        """Advance all jobs, answer the preparations, and return all messages."""
        self._expire(now_ms)
        for job in self._jobs.values():
            self._advance(job, now_ms)
        for notice in self._notices.values():
            if notice.connection is None:
                continue
            missing = self._missing(notice)
            if not missing:
                named = [job for job in self._jobs.values() if notice.key in job.acknowledged]
                jobs = {job.name: job.acknowledged[notice.key]["checkpoint"] for job in named}
                self._answer(notice, {"say": "acknowledged", "jobs": jobs})
            elif any(notice.key in job.late for job in missing):
                reason = "; ".join(job.missed or job.state() for job in missing)
                self._answer(notice, {"say": "late", "reason": reason})
        out, self._out = tuple(self._out), []
        return out

    def _advance(self, job: RegisteredJob, now_ms: int) -> None:
        waiting = self._open(job)
        if waiting and job.phase == ACKNOWLEDGED:  # the ranks still stand at the checkpoint
            self._consent(job, waiting, now_ms=now_ms)
        elif waiting and job.phase == IDLE and not job.absent():
            self._begin(job, waiting, now_ms=now_ms)
        elif not waiting and job.phase in (GATHERING, STOPPING):
            _end_round(job)
        if job.phase == GATHERING and all(rank.gate is not None for rank in job.active):
            job.step = max((rank.gate or 0 for rank in job.active), default=0)
            job.phase = STOPPING
            self._broadcast(job, {"say": "stop", "round": job.round, "step": job.step})
        stands = all(rank.stopped == job.step for rank in job.active)
        if job.phase == STOPPING and job.checkpoint and stands:
            job.phase = ACKNOWLEDGED
            self._consent(job, waiting, now_ms=now_ms)
        self._release(job)

    def _begin(self, job: RegisteredJob, waiting: list[VmNotice], *, now_ms: int) -> None:
        job.phase = GATHERING
        job.round += 1
        job.holding = True
        first = min(waiting, key=lambda notice: notice.deadline_ms)
        message = {
            "say": "notice",
            "round": job.round,
            "left_ms": first.deadline_ms - now_ms,
            "event": first.event,
            "vms": sorted({notice.vm for notice in waiting}),
        }
        self._broadcast(job, message)

    def _consent(self, job: RegisteredJob, waiting: list[VmNotice], *, now_ms: int) -> None:
        """Record the acknowledgement for the open notices, and report it to the ranks."""
        consent = _consent(job, now_ms)
        for notice in waiting:
            job.acknowledged[notice.key] = {
                name: consent[name] for name in ("checkpoint", "step", "at_ms")
            }
        self.generation += 1
        self._broadcast(job, consent)

    def _release(self, job: RegisteredJob) -> None:
        """Release the ranks once no notice keeps them."""
        if not job.holding or self._open(job):
            return
        if any(key in job.acknowledged for key in self._notices):
            return
        _end_round(job)
        job.holding = False
        self._broadcast(job, {"say": "resume", "why": "late" if job.late else "over"})

    def _open(self, job: RegisteredJob) -> list[VmNotice]:
        """Return the notices that a job must acknowledge and still can."""
        return [
            one
            for one in self._notices.values()
            if one.concerns(job) and one.key not in job.acknowledged and one.key not in job.late
        ]

    def _missing(self, notice: VmNotice) -> list[RegisteredJob]:
        jobs = self._jobs.values()
        return [one for one in jobs if notice.concerns(one) and notice.key not in one.acknowledged]

    def _forget(self, job: RegisteredJob) -> None:
        del self._jobs[job.name]
        for connection in [one for one, place in self._places.items() if place[0] is job]:
            del self._places[connection]
        self.generation += 1

    def _broadcast(self, job: RegisteredJob, message: Message) -> None:
        for rank in job.ranks:
            if rank.connection is not None:
                self._out.append((rank.connection, message))

    def _answer(self, notice: VmNotice, message: Message) -> None:
        if notice.connection is not None:
            self._out.append((notice.connection, message))
            notice.connection = None

    def _refuse(self, connection: int, code: str, reason: str) -> None:
        self._out.append((connection, {"say": "refused", "code": code, "reason": reason}))

    def _read(self, form: Form, now_ms: int) -> None:
        if member(form, "version", 0) != FORM_VERSION:
            raise FieldInvalid(name="version", found=form.get("version"))
        for one in several(form, "notices"):
            notice = VmNotice(
                member(one, "event", ""),
                member(one, "vm", ""),
                deadline_ms=member(one, "deadline_ms", 0),
                jobs=tuple(words(one, "jobs")),
            )
            self._notices[notice.key] = notice
        for one in several(form, "jobs"):
            job = RegisteredJob(
                member(one, "name", ""), member(one, "world", 1), owner=member(one, "owner", "")
            )
            left: list[int] = member(one, "left", [])
            for number in left:
                job.ranks[number].left = True
            kept = inner(one, "acknowledged")
            job.acknowledged = {key: inner(kept, key) for key in kept}
            job.late = set(words(one, "late"))
            job.lost_ms = now_ms
            self._jobs[job.name] = job


def _end_round(job: RegisteredJob) -> None:
    job.phase = IDLE
    job.checkpoint = ""
    for rank in job.ranks:
        rank.gate = rank.stopped = None


def _consent(job: RegisteredJob, now_ms: int) -> Message:
    return {
        "say": "acknowledged",
        "checkpoint": job.checkpoint,
        "step": job.step,
        "at_ms": now_ms,
    }


def _text(message: Form, name: str, *, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    text = member(message, name, "")
    if not 0 < len(text) <= characters_max or not text.isprintable():
        raise Refusal("message-invalid", f"{name} must have 1 to {characters_max} characters")
    return text


def _ranks(numbers: Iterable[int]) -> str:
    """Return the ranks and a verb, for a sentence; name at most eight."""
    listed = [str(number) for number in numbers]
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    noun, verb = ("rank", "is") if len(listed) == 1 else ("ranks", "are")
    return f"{noun} {', '.join(listed[:8])}{more} {verb}"
