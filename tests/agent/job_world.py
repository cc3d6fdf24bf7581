"""A job in virtual time: ranks, a coordinator, messages that take time, and faults at random.

The pure parts run unchanged. Each message waits in the queue of its connection, and arrives in
order; deaths of ranks, of preparations and of the agent lose what is under way.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from forewarn.agent.jobs import rank as ranks
from forewarn.agent.jobs.coordinator import Coordinator
from forewarn.agent.jobs.rank import RankState

NOTICE_MS = 60_000
STEP_MS = 500


class Process:
    """One rank as a program: it steps in lockstep, checkpoints, and is restarted after a death."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.state = RankState("train", number, world.size)
        self.step = world.saved
        self.connection: int | None = None
        self.wakes_ms = self.starts_ms = world.now_ms + world.restart_ms
        self.asked = False

    def act(self, now_ms: int) -> None:
        """Do the main thread's next deed."""
        world, state = self.world, self.state
        if state.phase == ranks.STOPPED and not self.asked:
            self.asked = True
            if self.number == world.speaker:
                world.saved_at[f"step-{self.step}"] = self.step
                world.saved = self.step
                world.send(self, state.acknowledge(f"step-{self.step}"))
            return
        verdict, messages = self.pass_at(self.step)
        world.send(self, messages)
        if verdict == ranks.STOP:
            self.asked = False
            self.wakes_ms = now_ms + world.save_ms
            world.stopped.append((state.round, self.number, self.step))
        elif verdict == ranks.WAIT:
            if now_ms >= state.deadline_ms and not state.checkpoint:
                state.resume("late")
        elif min(one.step for one in world.processes) >= self.step:  # the collective of the step
            self.step += 1
            self.wakes_ms = now_ms + world.random.randint(*world.step_ms)

    def pass_at(self, step: int) -> tuple[str, list[dict[str, object]]]:
        """Pass the step as `Job.poll` does, with its comparison without the lock."""
        self.state.step = step
        if step < self.state.gate:
            return ranks.PASS, []
        return self.state.may_pass(step)


class World:
    """The agent's coordinator, the ranks, and one preparation per VM."""

    #: How long each rank saves once it has stopped.
    save_ms = 0
    #: Time from a rank's death until the ranks are started again.
    restart_ms = 0
    step_ms = (1, STEP_MS)

    def __init__(self, seed: int, *, size: int = 8, faults: int = 3, vms: int = 2) -> None:
        self.random = Random(seed)
        self.size = size
        self.saved = 0
        self.speaker = self.random.randrange(size)
        self.saved_at: dict[str, int] = {}
        self.stopped: list[tuple[int, int, int]] = []
        self.approved: dict[str, tuple[int, dict[str, str]]] = {}
        self.held: dict[str, str] = {}
        #: Steps since the last checkpoint that deaths of ranks have made the job repeat.
        self.repeated = 0
        #: Consents that a preparation heard of before they were on disk.
        self.undurable = 0
        self.now_ms = 0
        self.core = Coordinator(spans_vms=True)
        self.disk: dict[str, Any] = self.core.form()
        self.written = 0
        self.next_connection = 0
        self.queue: list[tuple[int, int, str, dict[str, object]]] = []
        self.processes = [Process(self, number) for number in range(size)]
        self.hooks: dict[str, int | None] = {}
        self.deadline_ms = self.random.randint(5, 40) * STEP_MS + 1_000
        self.begins_ms = self.random.randint(4, 20) * STEP_MS
        self.vms = [f"vm_{number}" for number in range(vms)]
        span_ms = self.begins_ms + self.deadline_ms
        kinds = ("rank", "agent", "hook", "link")
        self.faults = sorted(
            (self.random.randint(0, span_ms), self.random.choice(kinds)) for _ in range(faults)
        )

    @property
    def until_ms(self) -> int:
        """Until when an acknowledgement counts."""
        return self.begins_ms + self.deadline_ms

    def run(self) -> None:
        """Run until a while after the deadline, then end the event."""
        while self.now_ms < self.until_ms + 5_000:
            self.turn()
        for vm in self.vms:
            self._deliver(self._connect(), {"do": "over", "event": "E1", "vm": vm})
        end_ms = self.now_ms + 60 * STEP_MS
        while self.now_ms < end_ms:
            self.turn()

    def turn(self) -> None:
        """Let some time pass: faults, connections, messages, then every main thread."""
        self.now_ms += self.random.randint(1, 110)
        while self.faults and self.faults[0][0] <= self.now_ms:
            self._break(self.faults.pop(0)[1])
        self._connect_all()
        due, self.queue = (
            [one for one in self.queue if one[0] <= self.now_ms],
            [one for one in self.queue if one[0] > self.now_ms],
        )
        for _, connection, side, message in due:
            if side == "agent":
                self._deliver(connection, message)
            else:
                self._hear(connection, message)
        self._out(self.core.time_passed(self.now_ms))
        for process in self.processes:
            if self.now_ms >= process.wakes_ms:
                process.act(self.now_ms)

    def _connect_all(self) -> None:
        """Connect the ranks, and the preparations while the notice runs."""
        for process in self.processes:
            starts = process.connection is None and self.now_ms >= process.starts_ms
            if starts and self.random.random() < 0.3:
                process.connection = self._connect()
                self.send(process, [process.state.registration()])
        if self.begins_ms <= self.now_ms < self.until_ms:
            for vm in self.vms:
                if self.hooks.get(vm) is None and vm not in self.approved and vm not in self.held:
                    self.hooks[vm] = self._connect()
                    left_ms = self.until_ms - self.now_ms
                    names = {"event": "E1", "vm": vm, "left_ms": left_ms}
                    self._post(self.hooks[vm] or 0, "agent", {"do": "notice", **names})

    def send(self, process: Process, messages: list[dict[str, object]]) -> None:
        """Send messages of a rank, unless it has no connection."""
        for message in messages:
            if process.connection is not None:
                self._post(process.connection, "agent", message)

    def _connect(self) -> int:
        self.next_connection += 1
        return self.next_connection

    def _post(self, connection: int, side: str, message: dict[str, object]) -> None:
        """Queue a message behind the earlier ones of its connection and direction."""
        before = [at for at, one, way, _ in self.queue if (one, way) == (connection, side)]
        at_ms = max([self.now_ms + self.random.randint(0, 80), *before])
        self.queue.append((at_ms, connection, side, json.loads(json.dumps(message))))
        self.queue.sort(key=lambda one: one[0])

    def _deliver(self, connection: int, message: dict[str, object]) -> None:
        sent = self.core.received(
            connection, message, owner="1000", trusted=True, now_ms=self.now_ms
        )
        self._out(sent)

    def _out(self, sent: tuple[tuple[int, dict[str, object]], ...]) -> None:
        if self.core.generation != self.written:
            self.disk = json.loads(json.dumps(self.core.form()))
            self.written = self.core.generation
        durable = [one["acknowledged"] for one in self.disk["jobs"]]
        for connection, message in sent:
            self.undurable += "jobs" in message and not all(durable)
            self._post(connection, "peer", message)

    def _hear(self, connection: int, message: dict[str, object]) -> None:
        for process in self.processes:
            if process.connection == connection:
                if message["say"] == "refused" and message["code"] == "rank-taken":
                    process.connection = None
                    return
                self.send(process, process.state.heard(message, self.now_ms))
        for vm, hook in self.hooks.items():
            if hook == connection and vm not in self.approved and vm not in self.held:
                if message["say"] == "acknowledged":
                    jobs: Any = message["jobs"]
                    self.approved[vm] = self.now_ms, jobs
                elif message["say"] == "late":
                    self.held[vm] = str(message["reason"])

    def _break(self, kind: str) -> None:
        if kind == "agent":
            self.queue = []
            self.core = Coordinator(spans_vms=True, form=self.disk, now_ms=self.now_ms)
            self.written = 0
            self.hooks = {}
            for process in self.processes:
                process.connection = None
                process.state.disconnected()
        elif kind == "hook":
            for vm, hook in tuple(self.hooks.items()):
                if hook is not None:
                    self._end(hook)
                    self.hooks[vm] = None
                    break
        else:
            process = self.random.choice(self.processes)
            if process.connection is not None:
                self._end(process.connection)
            process.connection = None
            process.state.disconnected()
            if kind == "rank":  # the job's launcher starts all ranks again from the checkpoint
                for one in self.processes:
                    if one.connection is not None:
                        self._end(one.connection)
                self.repeated += max(one.step for one in self.processes) - self.saved
                self.processes = [Process(self, number) for number in range(self.size)]

    def _end(self, connection: int) -> None:
        self.queue = [one for one in self.queue if one[1] != connection]
        self._out(self.core.closed(connection, self.now_ms))
