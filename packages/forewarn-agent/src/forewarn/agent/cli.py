"""The commands of `forewarn agent`: run, check, init, status, node-events, undo and forget.

The running agent does not import this module, to save memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import KNOWN_TYPES, matching_rule
from forewarn.agent.preparation_catalog import PREPARATIONS
from forewarn.agent.sdk.dialogue import CLOCKS_DIFFER_MS, FIXED_ENDPOINT
from forewarn.agent.sdk.http import Endpoint, ResponseReader, request_bytes, target_of
from forewarn.agent.settings import AgentSettings
from forewarn.agent.startup import DEFAULT_CONFIG, cannot_go_on, own_name, run, sentence_of
from forewarn_base import exit_codes
from forewarn_base.errors import CallerError, CommandLineInvalid, ForewarnError, PeerError
from forewarn_base.protocol.documents import ScheduledEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forewarn.agent.core.rules import Rule

DEFAULT_STATUS = "127.0.0.1:8471"
STATUS_TIMEOUT_S = 5.0
#: Least notice of each impact in seconds, for the explanations of `check`. Source: N-1.
NOTICE_S = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}


class AgentUnreachable(PeerError):
    """The agent's status endpoint does not answer."""

    code = "agent-unreachable"
    message = "No agent answers at {address}: {reason}."
    advice = "Check that the agent runs and [status] listen is set, or use --address."


class EventsNotServed(CallerError):
    """The configuration does not say where to serve the events of the node."""

    code = "agent-events-not-served"
    message = "{path} has no [kubernetes] events_listen."
    advice = 'Set it to an address of this machine, such as "127.0.0.1:8472".'


class StarterUnwritable(CallerError):
    """The starter configuration cannot be written."""

    code = "starter-unwritable"
    message = "{path} cannot be written: {reason}."
    advice = "Run the command as root, or name another file with --config."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of `python -m forewarn.agent`; return its exit status."""
    try:
        return execute(argv)
    except ForewarnError as error:
        sys.stderr.write(f"{sentence_of(error)}\n")
        return exit_codes.UNREACHABLE if isinstance(error, PeerError) else exit_codes.USAGE


def execute(argv: Sequence[str] | None = None) -> int:
    """Run a command of the agent; return its exit status.

    Raises:
        ForewarnError: the command failed, or the command line is invalid.
    """
    parser = _Parser(prog=own_name(), description="Follow this machine's events.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    for name, (text, action) in ACTIONS.items():
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="print JSON, for programs")
        add_arguments(name, sub)
        sub.set_defaults(run=action)
    try:
        options = parser.parse_args(argv)
    except SystemExit as end:  # argparse has printed the help or the version
        return end.code if isinstance(end.code, int) else exit_codes.OK
    return int(options.run(options))


class _Parser(argparse.ArgumentParser):
    """A parser that raises an error for an invalid command line."""

    def error(self, message: str) -> NoReturn:
        """Report an invalid command line in one sentence."""
        problem = f"{message[:1].upper()}{message[1:]}."
        raise CommandLineInvalid(problem=problem, program=self.prog)


class _Version(argparse.Action):
    """Option that prints the version; reads the version from files only when used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and exit."""
        from forewarn_base.version import version  # noqa: PLC0415  slow to import

        print(f"forewarn-agent {version()}")
        parser.exit()


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command."""
    if name == "status":
        place = parser.add_mutually_exclusive_group()
        place.add_argument(
            "--address",
            default="",
            metavar="ADDRESS:PORT",
            help=f"status endpoint of the agent (default: {DEFAULT_STATUS})",
        )
        place.add_argument(
            "--config",
            default="",
            metavar="FILE",
            help="configuration with the address of the status endpoint",
        )
        return
    if name in ("undo", "forget"):
        parser.add_argument(
            "name", metavar="NAME", help="step or event from the output of `status`"
        )
    if name == "run":
        from forewarn.agent.jobs import wrapped  # noqa: PLC0415  only for `run`

        wrapped.add_arguments(parser)
    parser.add_argument(
        "--config",
        default=DEFAULT_CONFIG,
        metavar="FILE",
        help=f"configuration (default: {DEFAULT_CONFIG})",
    )


def _run(options: argparse.Namespace) -> int:
    if options.command:
        from forewarn.agent.jobs.wrapped import run_wrapped  # noqa: PLC0415  the same

        return run_wrapped(options)
    try:
        run(options.config)
    except OSError as error:
        return cannot_go_on(error)
    return exit_codes.OK


def _check(options: argparse.Namespace) -> int:
    """Check a configuration, and explain its actions for each kind of event."""
    from forewarn.agent.config import read_config  # noqa: PLC0415  the same
    from forewarn.agent.config_check import oddities  # noqa: PLC0415  not needed to run

    form = read_config(options.config)
    if form["check_permissions"]:
        _check_state(str(form["state_dir"]))
    settings, odd = AgentSettings(form), oddities(form)
    explained = [
        _explanation(settings, kind, source, duration_s=duration_s)
        for kind in KNOWN_TYPES
        for source in SOURCES
        for duration_s in ((SHORT_S, -1) if kind == "Freeze" else (-1,))
    ]
    if options.json:
        print(json.dumps({"config": options.config, "events": explained, "warnings": odd}))
        return exit_codes.OK
    print(f"{options.config} is valid. The service is {settings.endpoint or FIXED_ENDPOINT}.")
    print("Actions for events of this VM with the shortest notice of their type:")
    for one in explained:
        kind = f"{one['type']}, {SHORT_S} s" if one["duration_s"] == SHORT_S else one["type"]
        print(f"  {kind:<12} {one['source']:<9} {one['does']}")
        print(f"  {'':<12} {'':<9} rule: {one['rule']}")
    for sentence in odd:
        print(f"warning: {sentence}", file=sys.stderr)
    return exit_codes.OK


def _check_state(directory: str) -> None:
    """Refuse an open state directory; root checks it for the user who owns it."""
    from forewarn.agent.permissions import is_root, refuse_open_state  # noqa: PLC0415  the same

    exists = Path(directory).is_dir()
    refuse_open_state(
        directory, user=Path(directory).stat().st_uid if exists and is_root() else None
    )


SOURCES = ("Platform", "User")
#: Duration of a freeze by live migration or a memory-preserving update, in seconds. Source: N-1.
SHORT_S = 5


def _explanation(
    settings: AgentSettings, kind: str, source: str, *, duration_s: int
) -> dict[str, object]:
    event = ScheduledEvent(
        event_id="EXAMPLE",
        event_type=kind,
        source=source,
        duration_s=duration_s,
        resources=("this",),
        not_before_ms=NOTICE_S[kind] * 1000,
    )
    rule = matching_rule(settings.rules, event, Identity("this"), now_ms=0)
    does = _sentence(rule)
    return {
        "type": kind,
        "source": source,
        "duration_s": duration_s,
        "does": does,
        "rule": rule.name,
    }


def _sentence(rule: Rule) -> str:
    """Return the action of a rule as a phrase."""
    if rule.action == "approve":
        when = {"first": "at once as leader", "all": "when all are prepared", "self": "at once"}
        return f"approves {when[rule.coordination]}"
    if rule.action != "prepare":
        return {"ignore": "does nothing", "notify": "sends notifications only"}[rule.action]
    groups = [" and ".join(step.name for step in group) for group in rule.steps]
    steps = ", then ".join(groups)
    after = "approves" if rule.then == "approve" else "waits for NotBefore"
    who = {"first": "as leader", "all": "when all are prepared", "self": "for itself"}
    tail = f" {who[rule.coordination]}" if rule.then == "approve" else ""
    if not steps:
        return f"{after}{tail}, without a step to prepare"
    return f"prepares ({steps}), then {after}{tail}"


def _init(options: argparse.Namespace) -> int:
    """Write a commented starter file; leave an existing file unchanged."""
    path = Path(options.config)
    if os.path.lexists(path):
        print(f"{path} exists and remains unchanged.", file=sys.stderr)
        return exit_codes.REFUSED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # follow no links
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(STARTER.format(uses=", ".join(sorted(PREPARATIONS))))
    except OSError as error:
        raise StarterUnwritable(path=path, reason=error.strerror) from error
    if options.json:
        print(json.dumps({"config": str(path)}))
        return exit_codes.OK
    print(f"{path} is written; edit the file, then run: {own_name()} check --config {path}")
    return exit_codes.OK


def _status(options: argparse.Namespace) -> int:
    """Show the running agent's events and actions."""
    form = ask_status(options.address or _status_address(options.config))
    if options.json:
        print(json.dumps(form))
        return exit_codes.OK
    since = form["seconds_since_poll"]
    if since is None:
        print(f"The service at {form['endpoint']} has not answered yet.")
    else:
        print(f"{form['name']} asks {form['endpoint']} with {form['api_version']}.")
    print(f"Last good poll: {'never' if since is None else f'{since:.1f} s ago'}.")
    if form["trouble"]:
        print(f"Problem: {form['trouble']}")
    if form.get("choice_problem"):
        print(f"Problem: the rule cannot choose: {form['choice_problem']}.")
    ahead_s = form.get("service_clock_ahead_s", 0)
    if abs(ahead_s) * 1000 >= CLOCKS_DIFFER_MS:
        way = "ahead of" if ahead_s > 0 else "behind"
        print(f"Problem: the service's clock is {abs(ahead_s):.0f} s {way} this VM's clock.")
    for one in form["events"]:
        event = one["event"]
        why = f" ({one['why']})" if one["why"] else ""
        print(f"{event['event_type']:<10} {event['event_id']}  {one['stage']}{why}")
    if not form["events"]:
        print("Nothing is scheduled.")
    for step, why in form["unrecovered"].items():
        print(f"NOT UNDONE, the agent will retry: {step}: {why}")
        print(f"  to retry now: {own_name()} undo {step}; to give up: {own_name()} forget {step}")
    return exit_codes.REFUSED if form["unrecovered"] else exit_codes.OK


def _status_address(config: str) -> str:
    from forewarn.agent.config import read_config  # noqa: PLC0415  not needed to run

    named = str(read_config(config)["status_listen"]) if config else ""
    return named or DEFAULT_STATUS


def _node_events(options: argparse.Namespace) -> int:
    """Serve what AKS reports on this node, until stopped."""
    from forewarn.agent.config import read_config  # noqa: PLC0415  not needed to run
    from forewarn.agent.node_events import serve  # noqa: PLC0415  the same

    form = read_config(options.config)
    settings = AgentSettings(form)
    if not settings.kubernetes.get("events_listen"):
        raise EventsNotServed(path=options.config)
    try:
        serve(settings)
    except OSError as error:
        return cannot_go_on(error)
    return exit_codes.OK


def _undo(options: argparse.Namespace) -> int:
    from forewarn.agent.undo_commands import ask  # noqa: PLC0415  not needed to run

    return ask("undo", options)


def _forget(options: argparse.Namespace) -> int:
    from forewarn.agent.undo_commands import ask  # noqa: PLC0415  the same

    return ask("forget", options)


def ask_status(address: str) -> dict[str, Any]:
    """Return the status from the status endpoint at `ADDRESS:PORT`.

    Raises:
        EndpointInvalid: the address is malformed.
        AgentUnreachable: no agent answers at the address.
    """
    from forewarn.agent.sdk.sockets import connect  # noqa: PLC0415  not needed to run

    target: Endpoint = target_of(f"http://{address}")
    reader = ResponseReader()
    try:
        with connect(target, STATUS_TIMEOUT_S) as connection:
            connection.sendall(request_bytes("GET", target, path="/status"))
            while not reader.feed(connection.recv(65536)):
                pass
        assert reader.answer is not None
        form: dict[str, Any] = json.loads(reader.answer.body)
        _ = form["seconds_since_poll"]  # the status of other services lacks this member
    except OSError as error:
        raise AgentUnreachable(address=address, reason=error.strerror or error) from error
    except (ValueError, LookupError, TypeError, PeerError) as error:
        raise AgentUnreachable(address=address, reason="another program answers") from error
    return form


ACTIONS = {
    "run": ("follow the events until stopped, or run a program as a job", _run),
    "check": ("check a configuration and explain its effect", _check),
    "init": ("write a commented starter configuration", _init),
    "status": ("show the running agent's events and actions", _status),
    "node-events": (
        "serve the events that AKS reports on this Kubernetes node, on this machine only",
        _node_events,
    ),
    "undo": ("retry now to undo a step, or the steps of an event", _undo),
    "forget": ("stop retrying to undo a step or an event; an operator undoes the step", _forget),
}

STARTER = """\
# Configuration of the forewarn agent. `forewarn agent check` explains its effect.
# Lines that are commented out show the defaults.

[agent]
# endpoint = ""          # address of the metadata service; empty: 169.254.169.254, then DHCP
# interval_s = 1.0       # between two polls
# wait_s = 60.0          # longest time the service may delay an answer; 0: no delay
# name = ""              # this VM's name in Resources; empty: read it from instance metadata
# aliases = []           # further names of this VM
# scale_set = ""         # computer vmss000003 of scale set vmss is vmss_3
# freeze_tolerated_s = 9 # approve shorter freezes at once
# stop_grace_s = 5.0     # between SIGTERM and SIGKILL to a hook
# pass_environment = []  # further variables of the agent's environment for hooks
# inhibit_shutdown = false # let logind delay a shutdown while hooks run
# outcomes = false       # pass the event's outcome to recovery hooks; the service must support it
# state_dir = "/var/lib/forewarn-agent"
# hooks_dir = "/etc/forewarn-agent"   # contains prepare.d, approve.d, recover.d, cancel.d
# check_permissions = true # refuse configuration and hooks that other users can write
# log = "text"           # or "json"

[status]
# listen = ""            # "127.0.0.1:8471" for `forewarn agent status`, probes and metrics
# cert = ""              # with key: TLS
# key = ""

[jobs]
# listen = ""            # "/run/forewarn-agent/jobs.sock" for jobs that checkpoint and consent
# token_file = ""        # with ADDRESS:PORT: the token of ranks on other VMs

[notify]
# webhook = "https://example.net/hook"       # every notification, as JSON
# webhook_secret_file = "/etc/forewarn-agent/secret"
# cloudevents = "https://example.net/events" # every notification, as a CloudEvent
# apprise = ["mailto://..."]                 # where Apprise is installed
# level = "warning"                          # lowest level that is sent

# The agent prepares a step before the event and undoes it after, by two commands of your own ...
# [step.drain]
# prepare = ["/usr/local/bin/drain"]
# recover = ["/usr/local/bin/undrain"]
# timeout_s = 300
# on_failure = "hold"    # or "go-on" or "abort"
#
# ... or a ready-made preparation: {uses}.
# [step.web]
# use = "systemd"
# units = ["nginx.service"]

# Rules: the first rule that matches an event decides. Without rules, the agent approves short
# freezes at once, and, if there are no steps, events that users requested. For all other events it
# prepares all steps in order, then approves.

# Without steps, an approval would only shorten the notice. Remove this rule with your first step.
[[rule]]
name = "until there are steps"
action = "notify"

# [[rule]]
# name = "reboots and worse"
# type = ["Reboot", "Redeploy", "Preempt", "Terminate"]
# action = "prepare"     # or "approve", "notify", "ignore"
# then = "approve"       # or "hold": do not approve; the event starts at its NotBefore
# steps = ["drain", "web"]         # or [["drain", "web"]]: both at the same time
# coordination = "first" # or "all", "self"
"""

if TYPE_CHECKING:
    from typing import Any
