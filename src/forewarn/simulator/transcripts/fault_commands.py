"""The commands of transcripts that let time pass and things go wrong.

What people, machines and drivers do is in `commands.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.stimulus import GroupsPolled
from forewarn.simulator.transcripts.time_spans import seconds
from forewarn.simulator.world.failover import Failover
from forewarn.simulator.world.simulated_store import TROUBLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.simulator.transcripts.grammar import Options, Words
    from forewarn.simulator.transcripts.scripted_deployment import ScriptedDeployment


MARK_S = 3600
"""How often it is noted that groups poll while time passes."""


class FaultCommands:
    """Does those commands on one stage."""

    def __init__(self, stage: ScriptedDeployment, silent: set[str]) -> None:
        """Let time pass on a stage; the groups in `silent` do not poll meanwhile."""
        self.stage = stage
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
        agenda = self.stage.agenda
        until_ms = agenda.now_ms + seconds(words[0]) * 1000
        while agenda.now_ms < until_ms:
            next_ms = min(agenda.now_ms + MARK_S * 1000, until_ms)
            while agenda.step(next_ms):
                pass
            polling = frozenset(self.stage.judge.mirror.enrolments) - self._silent
            self.stage.service.note(GroupsPolled(polling), "metadata")
        return []

    def _crash(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        if words:
            self.stage.fuse.arm(" ".join(words))
        elif self.stage.service.up:
            self.stage.service.crash()
        else:
            raise ValueError("the service is down already")
        return []

    def _restart(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        if self.stage.service.up:
            raise ValueError("the service runs already")
        return [] if self.stage.service.start() else ["the service cannot start"]

    def _store(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        if words[0] == "next":
            self.stage.disk_weather.next = [word.replace("-", " ") for word in words[1:]]
            return []
        trouble = " ".join(words)
        self.stage.disk_weather.permille = 0 if trouble == "recovers" else 1000
        if trouble != "recovers":
            self.stage.disk_weather.kinds = (TROUBLES[TROUBLES.index(trouble)],)
        return []

    def _follower(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        node = self.stage.nodes[1]
        self.stage.cut(node) if words[0] == "cut" else self.stage.join(node)
        return []

    def _nodes(self, words: Words, options: Options) -> list[str]:
        if words:
            self.stage.show_fails = words[0] == "fail"
        else:
            self.stage.show_lag_ms = seconds(options["lag"]) * 1000
        return []

    def _clock(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        self.stage.service.wall_offset_ms += seconds(words[1]) * 1000
        return []

    def _writer(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        away = self._contest is not None and self._contest.away
        if words[0] == "returns":
            if self._contest is None or not away:
                raise ValueError("no writer is away")
            self._contest.back()
            return []
        if not self.stage.service.up:
            raise ValueError("no writer runs; `restart` starts the service")
        contended = self._contest is not None and not self._contest.over
        if away or contended or self.stage.rival is not None:
            raise ValueError("two writers contend already")
        self._contest = Failover(self.stage, cut=words[0] == "is-cut-off")
        return []
