"""The agent's counters, and their text for Prometheus.

Labels contain only values of fixed sets, so that the number of time series is bounded.
"""

from __future__ import annotations

from forewarn.agent.core.rules import HOLD_STATUS

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.core.agent_core import AgentCore
    from forewarn.agent.core.values import HookEnded, HookIntent, NotifyIntent
    from forewarn.agent.poller import Poller

#: Help text of each metric.
HELP = {
    "forewarn_agent_polls_total": "Successful polls.",
    "forewarn_agent_seconds_since_poll": "Seconds since the last successful poll; -1 before the "
    "first.",
    "forewarn_agent_events": "Events of the last document, by stage for this VM.",
    "forewarn_agent_notice_seconds": "Seconds until the next NotBefore; -1 without a NotBefore.",
    "forewarn_agent_service_clock_ahead_seconds": "Seconds by which the service's clock is ahead "
    "of this VM's.",
    "forewarn_agent_prepare_seconds_sum": "Total seconds in which events were prepared.",
    "forewarn_agent_prepare_seconds_count": "Events that were prepared.",
    "forewarn_agent_approvals_total": "Approvals with the answer 200.",
    "forewarn_agent_hooks_total": "Ended hooks, by phase and result.",
    "forewarn_agent_failures_total": "Failures, by kind.",
    "forewarn_agent_unrecovered_steps": "Steps that repeatedly could not be undone and need an "
    "operator.",
}

KINDS = ("hook", "approval", "undo", "unrecovered", "journal")
FAILURE_ACTIONS = {
    "step-failed": "hook",
    "approval-failed": "approval",
    "undo-failed": "undo",
    "unrecovered": "unrecovered",
}


class Metrics:
    """Counters since the start of the agent."""

    def __init__(self) -> None:
        self._failures = dict.fromkeys(KINDS, 0)
        self._hooks: dict[tuple[str, str], int] = {}
        self._phases: dict[str, str] = {}
        self._seen_ms: dict[str, int] = {}
        self._prepare_ms = 0
        self._prepared = 0
        self._approvals = 0

    def failed(self, kind: str) -> None:
        """Count a failure of one of `KINDS`."""
        self._failures[kind] += 1

    def began(self, intent: HookIntent, now_ms: int) -> None:
        """Count the start of a hook."""
        self._phases[intent.key] = intent.phase
        if intent.phase == "prepare":
            self._seen_ms.setdefault(intent.event.event_id, now_ms)

    def ended(self, ended: HookEnded) -> None:
        """Count the end of a hook."""
        phase = self._phases.pop(ended.key, "prepare")
        key = (phase, {0: "ok", HOLD_STATUS: "held"}.get(ended.exit_status, "failed"))
        self._hooks[key] = self._hooks.get(key, 0) + 1

    def notified(self, notify: NotifyIntent, now_ms: int) -> None:
        """Count a notification."""
        event_id = notify.event.event_id
        if notify.action in FAILURE_ACTIONS:
            self.failed(FAILURE_ACTIONS[notify.action])
        elif notify.action == "prepared" and event_id in self._seen_ms:
            self._prepare_ms += now_ms - self._seen_ms.pop(event_id)
            self._prepared += 1
        elif notify.action == "approved":
            self._approvals += 1
        elif notify.action in ("ended", "cancelled"):
            self._seen_ms.pop(event_id, None)

    def exposition(self, core: AgentCore | None, contact: Poller, *, now_ms: int) -> str:
        """Return all metrics in Prometheus's text format."""
        events = core.events if core is not None else ()
        stages: dict[str, int] = {}
        for record in events:
            stages[record.stage] = stages.get(record.stage, 0) + 1
        due = [record.event.not_before_ms for record in events]
        service_ms = now_ms + contact.ahead_ms
        left = [max(0, one - service_ms) / 1000 for one in due if one is not None]
        since = -1.0 if contact.good_ms is None else (now_ms - contact.good_ms) / 1000
        unrecovered = len(core.unrecovered) if core is not None else 0
        prefix = "forewarn_agent_"
        samples = [
            (f"{prefix}polls_total", "", contact.polls),
            (f"{prefix}seconds_since_poll", "", since),
            *((f"{prefix}events", f'{{stage="{k}"}}', n) for k, n in sorted(stages.items())),
            (f"{prefix}notice_seconds", "", min(left, default=-1)),
            (f"{prefix}service_clock_ahead_seconds", "", contact.ahead_ms / 1000),
            (f"{prefix}prepare_seconds_sum", "", self._prepare_ms / 1000),
            (f"{prefix}prepare_seconds_count", "", self._prepared),
            (f"{prefix}approvals_total", "", self._approvals),
            *(
                (f"{prefix}hooks_total", f'{{phase="{phase}",result="{result}"}}', n)
                for (phase, result), n in sorted(self._hooks.items())
            ),
            *((f"{prefix}failures_total", f'{{kind="{k}"}}', self._failures[k]) for k in KINDS),
            (f"{prefix}failures_total", '{kind="poll"}', contact.polls_failed),
            (f"{prefix}unrecovered_steps", "", unrecovered),
        ]
        lines, last = [], ""
        for name, labels, number in samples:
            if name != last:
                kind = "counter" if name.endswith(("_total", "_sum", "_count")) else "gauge"
                lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}"]
                last = name
            lines.append(f"{name}{labels} {number}")
        return "\n".join([*lines, ""])
