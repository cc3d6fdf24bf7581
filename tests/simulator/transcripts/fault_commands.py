"""The commands of transcripts that let time pass and things go wrong.

What people, machines and drivers do is in `commands.py`.
"""

from collections.abc import Callable

from forewarn_core.fleet.stimulus import GroupsPolled
from tests.simulator.transcripts.grammar import Options, Words
from tests.simulator.transcripts.scripted_deployment import ScriptedDeployment
from tests.simulator.transcripts.time_spans import seconds
from tests.simulator.world.failover import Failover
from tests.simulator.world.simulated_store import TROUBLES

#: How often it is noted that groups poll while time passes; a day of silence disables them.
MARK_S = 4 * 3600


class FaultCommands:
    """Does those commands on one deployment."""

    def __init__(self, deployment: ScriptedDeployment, silent: set[str]) -> None:
        """Let time pass on a deployment; the groups in `silent` do not poll meanwhile."""
        self.deployment = deployment
        self._silent = silent
        self._contest: Failover | None = None
        self.commands: dict[str, Callable[[Words, Options], list[str]]] = {
            "wait": self._wait,
            "crash": self._crash,
            "restart": self._restart,
            "store": self._store,
            "follower": self._follower,
            "nodes": self._nodes,
            "clock": self._clock,
            "writer": self._writer,
        }

    def _wait(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        queue = self.deployment.queue
        until_ms = queue.now_ms + seconds(words[0]) * 1000
        while queue.now_ms < until_ms:
            next_ms = min(queue.now_ms + MARK_S * 1000, until_ms)
            while queue.step(next_ms):
                pass
            polling = frozenset(self.deployment.checker.state.enrolments) - self._silent
            service = self.deployment.service
            if service.up and not service.paused:
                now_ms = service.clock.now_ms()
                self.deployment.checker.clients.marked(polling, now_ms)
            if polling:
                service.note(GroupsPolled(polling), "metadata")
        return []

    def _crash(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        if words:
            self.deployment.crash_point.arm(" ".join(words))
        elif self.deployment.service.up:
            self.deployment.service.crash()
        else:
            raise ValueError("the service is down already")
        return []

    def _restart(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        if self.deployment.service.up:
            raise ValueError("the service runs already")
        return [] if self.deployment.service.start() else ["the service cannot start"]

    def _store(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        if words[0] == "next":
            self.deployment.disk_fault_rates.next = [word.replace("-", " ") for word in words[1:]]
            return []
        trouble = " ".join(words)
        self.deployment.disk_fault_rates.permille = 0 if trouble == "recovers" else 1000
        if trouble != "recovers":
            self.deployment.disk_fault_rates.kinds = (TROUBLES[TROUBLES.index(trouble)],)
        return []

    def _follower(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        node = self.deployment.follower()
        self.deployment.cut(node) if words[0] == "cut" else self.deployment.join(node)
        return []

    def _nodes(self, words: Words, options: Options) -> list[str]:
        if words:
            self.deployment.publish_fails = words[0] == "fail"
        else:
            self.deployment.publish_lag_ms = seconds(options["lag"]) * 1000
        return []

    def _clock(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        self.deployment.service.wall_offset_ms += seconds(words[1]) * 1000
        return []

    def _writer(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        away = self._contest is not None and self._contest.away
        if words[0] == "returns":
            if self._contest is None or not away:
                raise ValueError("no writer is away")
            self._contest.back()
            return []
        if not self.deployment.service.up:
            raise ValueError("no writer runs; `restart` starts the service")
        contended = self._contest is not None and not self._contest.over
        if away or contended or self.deployment.replaced_writer is not None:
            raise ValueError("two writers contend already")
        self._contest = Failover(self.deployment, cut=words[0] == "is-cut-off")
        return []
