"""The commands of transcripts about maintenances, and what became of those that were asked for.

`operator maintenance h1 h2 at-once=1` describes one and has it begin; the other commands name it.
"""

from collections.abc import Callable

from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import PlaneStimulus
from forewarn_core.fleet.why import why_host, why_maintenance
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window
from forewarn_store import HistoryPage
from tests.simulator.transcripts.grammar import Options, Words
from tests.simulator.transcripts.scripted_deployment import ScriptedDeployment
from tests.simulator.transcripts.time_spans import clock_time, seconds
from tests.simulator.world.event_queue import START_MS

#: What of history is printed: each move of a maintenance and of its waves.
_TOLD = (
    "policy.applied",
    *(
        f"maintenance.{what}"
        for what in (
            "created",
            "started",
            "planned",
            "unplanned",
            "wave-begun",
            "wave-blocked",
            "wave-over",
            "gate-passed",
            "host-failed",
            "retried",
            "paused",
            "resumed",
            "stopped",
            "done",
            "cancelled",
            "postponed",
        )
    ),
)
_ENTRIES_MAX = 1000


class MaintenanceCommands:
    """Does what operators say of maintenances."""

    def __init__(
        self, deployment: ScriptedDeployment, submit: Callable[[PlaneStimulus], list[str]]
    ) -> None:
        """Speak to a deployment; `submit` submits a stimulus and returns what was answered."""
        self._deployment, self._submit = deployment, submit
        #: Number of the last maintenance described, and where its history was read up to.
        self._last = 0
        self._seq = 0

    def operator(self, verb: str, rest: Words, options: Options) -> list[str]:
        """Do what an operator says."""
        if verb == "maintenance":
            return self._create(rest, options)
        if verb == "policy":
            return self._apply_policy(options)
        number, reason = int(rest[0].partition("-")[2]), " ".join(rest[1:])
        if verb == "why":
            return self._why(number, reason)
        if verb == "postpone":
            return self._postpone(number, rest[1:], options)
        word: dict[str, PlaneStimulus] = {
            "start": stimuli.StartMaintenance(number),
            "pause": stimuli.PauseMaintenance(number, reason, "keep" in options),
            "resume": stimuli.ResumeMaintenance(number),
            "cancel": stimuli.CancelMaintenance(number, reason),
            "gate": stimuli.GateFailed(number, reason),
        }
        if verb not in word:
            raise ValueError(f"nobody can {verb} a maintenance")
        return self._submit(word[verb])

    def changes(self) -> list[str]:
        """Return what has become of maintenances since it was asked last."""
        store = self._deployment.service.store
        if not self._last or store is None:
            return []
        page = HistoryPage(after=self._seq, limit=_ENTRIES_MAX)
        found = store.history(page)
        self._seq = found[-1].seq if found else self._seq
        # Stories do not depend on the version of the machine's time zones.
        texts = [each.entry.text for each in found if each.entry.action in _TOLD]
        return [each.partition("; time zones by ")[0] for each in texts]

    def _create(self, hosts: Words, options: Options) -> list[str]:
        at_once = int(options.get("at-once", 0))
        deadline = options.get("deadline")
        asked = stimuli.CreateMaintenance(
            Cause.HOST_REBOOT,
            tuple(hosts),
            seconds(options.get("takes", "10m")),
            budgets=(Budget(Scope.FLEET, at_once),) if at_once else (),
            max_failures=int(options.get("failures", 0)),
            gate=options.get("gate", ""),
            deadline_ms=START_MS + clock_time(deadline) * 1000 if deadline else None,
            canary_hosts=tuple(each for each in options.get("canary", "").split(",") if each),
        )
        refused = self._submit(asked)
        self._last = self._last or 1
        return refused

    def _apply_policy(self, options: Options) -> list[str]:
        """Put a policy in force; a freeze begins now."""
        at_once = options.get("at-once")
        now_ms = self._deployment.service.clock.now_ms()
        frozen_ms = seconds(options.get("freeze", "0s")) * 1000
        policy = MaintenancePolicy(
            budgets=(Budget(Scope.FLEET, int(at_once)),) if at_once else (),
            windows=(_window(options),) if "window" in options else (),
            freezes=((now_ms, now_ms + frozen_ms),) if frozen_ms else (),
            pause_s=seconds(options.get("pause", "0s")),
            canary_count=int(options.get("canary", 0)),
            owner_rest_s=seconds(options.get("rest", "0s")),
            postpone_max_s=seconds(options.get("postponing", "0s")),
        )
        self._last = self._last or 1
        return self._submit(stimuli.ApplyPolicy(policy))

    def _postpone(self, number: int, hosts: Words, options: Options) -> list[str]:
        until_ms = START_MS + clock_time(options["until"]) * 1000
        by = options.get("by", "an owner")
        word = stimuli.PostponeHosts(number, tuple(hosts), until_ms, by, options.get("reason", ""))
        return self._submit(word)

    def _why(self, number: int, host: str) -> list[str]:
        loop = self._deployment.service.loop
        assert loop is not None
        plane = loop.plane
        maintenance = plane.state.maintenances.get(number)
        if maintenance is None:
            return ["waits for nothing"]
        draft = plane.draft(self._deployment.service.clock.now_ms())
        found = why_host(draft, maintenance, host) if host else why_maintenance(draft, maintenance)
        name = host or maintenance.id
        return [f"{found.code.value}: {found.sentence(name)}" if found else "waits for nothing"]


def _window(options: Options) -> Window:
    """Return the window that `22:00-04:00` means on every day in a time zone, but for one date."""
    opens, closes = (clock_time(f"{each}:00") // 60 for each in options["window"].split("-"))
    left_out = tuple(each for each in (options.get("except"),) if each)
    zone = options.get("zone", "UTC")
    return Window("daily", zone, from_min=opens, to_min=closes, except_dates=left_out)
