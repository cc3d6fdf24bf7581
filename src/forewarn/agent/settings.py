"""What the running agent needs to know, as light values; made from the form `config.py` checks."""

from __future__ import annotations

import json

from forewarn.agent.core.rules import (
    STAND_IN_S,
    TIMEOUT_S,
    Match,
    PreparationStep,
    Rule,
    default_rules,
)
from forewarn.agent.json_fields import flag, inner, member, number, several, words

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from forewarn.agent.json_fields import Form

DEFAULTS: dict[str, object] = {
    "endpoint": "",
    "api_version": "",
    "interval_s": 1.0,
    "wait_s": 60.0,
    "name": "",
    "aliases": [],
    "scale_set": "",
    "state_dir": "/var/lib/forewarn-agent",
    "hooks_dir": "/etc/forewarn-agent",
    "check_permissions": True,
    "freeze_tolerated_s": 9,
    "stop_grace_s": 5.0,
    "inhibit_shutdown": False,
    "outcomes": False,
    "log": "text",
    "status_listen": "",
    "status_cert": "",
    "status_key": "",
    "notify": {},
    "coordination": {},
}
"""Every setting of `[agent]`, `[status]`, `[notify]` and `[coordination]` with its default."""


class AgentSettings:
    """The settings of one agent. Durations are seconds."""

    endpoint: str
    """Where the service is; empty to discover it. Source: C-8."""
    api_version: str
    """The only api-version to use; empty to negotiate."""
    interval_s: float
    """Seconds between two polls. Source: C-1."""
    wait_s: float
    """Seconds the service is asked to hold an answer, where it can; 0 never. Source: E-9."""
    name: str
    """This VM's name in Resources; empty to ask the instance metadata. Source: I-2."""
    aliases: tuple[str, ...]
    """Further names of this VM in Resources."""
    scale_set: str
    """The scale set whose `NAME_NUMBER` this computer's name is turned into."""
    state_dir: str
    """Where the journal and the hooks' files are."""
    hooks_dir: str
    """Where `prepare.d`, `approve.d`, `recover.d` and `cancel.d` are."""
    freeze_tolerated_s: int
    """Freezes shorter than this are approved at once by the default rules. Source: C-4."""
    stop_grace_s: float
    """Seconds between asking a hook to end and ending it."""
    inhibit_shutdown: bool
    """Whether logind is asked to delay a shutdown while hooks run."""
    outcomes: bool
    """Whether recovery hooks get the outcome; the service must show it. Source: X-1."""
    log: str
    """`text` or `json`."""
    status_listen: str
    """`ADDRESS:PORT` of the status endpoint; empty for none."""
    status_cert: str
    """Certificate of the status endpoint, PEM; empty for plain HTTP."""
    status_key: str
    """Its private key."""
    notify: dict[str, object]
    """Where to notify people and systems; see `notify.py` of this room."""
    coordination: dict[str, object] | None
    """How the other VMs are asked, None for never; see `peers.py`."""
    rules: tuple[Rule, ...]
    """The rules, first match wins."""

    def __init__(self, form: Form) -> None:
        """Take over a checked form."""
        for name, default in DEFAULTS.items():
            setattr(self, name, form.get(name, default))
        self.aliases = tuple(self.aliases)
        self.rules = _rules(form, self.freeze_tolerated_s)


def _rules(form: Form, freeze_tolerated_s: int) -> tuple[Rule, ...]:
    steps = {str(step["name"]): _step(step) for step in several(form, "steps")}
    checks = tuple(_step(check) for check in several(form, "checks"))
    every = tuple((step,) for step in steps.values())
    rules = [_rule(rule, steps, checks=checks) for rule in several(form, "rules")]
    if rules:
        return tuple(rules)
    return default_rules(every, checks, freeze_tolerated_s=freeze_tolerated_s)


def _step(form: Form) -> PreparationStep:
    """Return a step; its spec is what `commands.py` turns into a command, phase by phase."""
    spec = inner(form, "spec")
    own = bool(spec.get("use"))
    return PreparationStep(
        member(form, "name", ""),
        timeout_s=number(form, "timeout_s", TIMEOUT_S),
        on_failure=member(form, "on_failure", "hold"),
        repeatable=flag(form, "repeatable", default=False),
        does=own or bool(spec.get("prepare") or spec.get("approve")),
        undoes=own or bool(spec.get("recover") or spec.get("cancel")),
        spec=json.dumps(spec, separators=(",", ":")),
    )


def _rule(
    form: Form, steps: dict[str, PreparationStep], *, checks: tuple[PreparationStep, ...]
) -> Rule:
    groups: list[list[str]] = member(form, "steps", [])
    match = inner(form, "match")
    return Rule(
        member(form, "name", ""),
        Match(
            types=tuple(words(match, "types")),
            sources=tuple(words(match, "sources")),
            duration_s=_bounds(match, "duration_s"),
            notice_s=_bounds(match, "notice_s"),
            description=member(match, "description", ""),
            about=member(match, "about", "this"),
        ),
        action=member(form, "action", "prepare"),
        then=member(form, "then", "approve"),
        steps=tuple(tuple(steps[name] for name in group) for group in groups),
        checks=checks,
        coordination=member(form, "coordination", "first"),
        stand_in_s=number(form, "stand_in_s", STAND_IN_S),
    )


def _bounds(match: Form, name: str) -> tuple[float, float] | None:
    pair: list[float] = member(match, name, [])
    return (pair[0], pair[1]) if pair else None
