"""The settings of the running agent, built from the checked form of `config.py`."""

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
from forewarn.agent.json_fields import flag, inner, member, number, several, texts, words
from forewarn_base.host_port import host_of_header

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.json_fields import Form

#: The settings of the tables of the configuration except steps and rules, with their defaults.
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
    "pass_environment": [],
    "inhibit_shutdown": False,
    "outcomes": False,
    "log": "text",
    "status_listen": "",
    "status_cert": "",
    "status_key": "",
    "status_allowed_hosts": [],
    "jobs_listen": "",
    "jobs_token_file": "",
    "notify": {},
    "coordination": {},
    "kubernetes": {},
    "choose": {},
}


class AgentSettings:
    """The settings of one agent. Durations are seconds."""

    #: Address of the service; empty to discover it. Source: C-8.
    endpoint: str
    #: The only api-version to use; empty: negotiate with the service.
    api_version: str
    #: Seconds between two polls. Source: C-1.
    interval_s: float
    #: Longest permitted delay of an answer, in seconds; 0: no delay. Source: E-9.
    wait_s: float
    #: This VM's name in Resources; empty to read it from the instance metadata. Source: I-2.
    name: str
    #: Further names of this VM in Resources.
    aliases: tuple[str, ...]
    #: Name of the scale set, for the conversion of the computer name to `NAME_NUMBER`.
    scale_set: str
    #: Directory of the journal and the hooks' files.
    state_dir: str
    #: Directory that contains `prepare.d`, `approve.d`, `recover.d` and `cancel.d`.
    hooks_dir: str
    #: Limit below which the default rules approve freezes at once, in seconds. Source: C-4.
    freeze_tolerated_s: int
    #: Seconds between SIGTERM and SIGKILL to a hook.
    stop_grace_s: float
    #: The variables of the agent's environment that hooks inherit.
    environment: dict[str, str]
    #: Whether logind must delay a shutdown while hooks run.
    inhibit_shutdown: bool
    #: Whether recovery hooks receive the outcome, which the service must support. Source: X-1.
    outcomes: bool
    #: `text` or `json`.
    log: str
    #: `ADDRESS:PORT` of the status endpoint; empty for none.
    status_listen: str
    #: Certificate of the status endpoint, PEM; empty for plain HTTP.
    status_cert: str
    #: Private key of the certificate.
    status_key: str
    #: Domain names that a request's `Host` may have, in lower case; the status endpoint accepts
    #: addresses and names without a dot as well.
    status_allowed_hosts: tuple[str, ...]
    #: Path of a Unix socket or `ADDRESS:PORT` for jobs; empty for none. Source: J-1.
    jobs_listen: str
    #: File with the token that ranks on other VMs prove; needed with `ADDRESS:PORT`.
    jobs_token_file: str
    #: Receivers of notifications; see `notify.py`.
    notify: dict[str, object]
    #: Method of asking the other VMs; None: never; see `peers.py`.
    coordination: dict[str, object] | None
    #: How to mark the VM's Kubernetes node; empty: not; see `node_job.py`.
    kubernetes: dict[str, object]
    #: The rule that chooses when declared work may disturb this VM; empty: none; see
    #: `choice_job.py`.
    choose: dict[str, object]
    #: The rules; the first match decides.
    rules: tuple[Rule, ...]

    def __init__(self, form: Form) -> None:
        for name, default in DEFAULTS.items():
            setattr(self, name, form.get(name, default))
        self.aliases = tuple(self.aliases)
        self.status_allowed_hosts = tuple(map(host_of_header, self.status_allowed_hosts))
        self.environment = texts(form, "environment") if "environment" in form else {}
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
    """Return a step; `commands.py` converts its spec to a command for each phase."""
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
