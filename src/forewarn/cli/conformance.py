"""`forewarn conformance`: check a server or a client of Scheduled Events."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn import exit_codes
from forewarn.cli.output import print_json
from forewarn.cli.parsing import CommandGroup, Parser
from forewarn.errors import CallerError, PeerError, reason_of

if TYPE_CHECKING:
    from forewarn.conformance.event_trial import Hooks
    from forewarn.conformance.run import Result

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


class ReportUnwritable(CallerError):
    """The report file cannot be written."""

    code = "conformance-report-unwritable"
    message = "{path} cannot be written: {reason}."
    advice = "Name a file in an existing, writable directory."


class ActFailed(PeerError):
    """The command of --schedule, --cancel or --fail failed."""

    code = "conformance-act-failed"
    message = "The command `{command}` failed: {reason}."
    advice = (
        "Run the command by hand; it must exit with status 0 after the event is scheduled or "
        "cancelled."
    )


def add_commands(commands: CommandGroup) -> None:
    """Add `conformance`."""
    group = commands.group("conformance", default="")
    server = group.command(
        "server", "check a server, statement by statement", run=_server, remote=False
    )
    server.add_argument("url", metavar="URL", help="the service, as http://HOST[:PORT]")
    for option, text in {
        "--schedule": "command that schedules an event for this VM; the suite follows the event",
        "--cancel": "command that cancels the last scheduled event",
        "--fail": "command that schedules an event that starts at once",
    }.items():
        server.option(f"{option} COMMAND", text)
    server.option("--only STATEMENT", "such as E-7 (repeatable)", action="append", default=[])
    server.flag("--approve", "approve the events of --schedule")
    server.flag(
        "--agent",
        "also run Forewarn's agent, which approves an event; "
        "the agent uses only host and port of the address",
    )
    server.option("--peer URL", "address of the service for another VM of the group")
    server.option("--other URL", "address of the service for a VM of another group")
    server.option(
        "--timeout SECONDS",
        "longest wait for an event's announcement, start or end (default: 300)",
        type=float,
        default=300.0,
    )
    _add_junit(server)
    _add_client(group)


def _add_client(group: CommandGroup) -> None:
    client = group.command(
        "client", "check a client with difficult scenarios", run=_client, remote=False
    )
    client.add_argument(
        "words",
        metavar="COMMAND",
        nargs="*",
        help="the client's command, after `--`; started for each scenario",
    )
    client.flag("--agent", "check Forewarn's agent")
    client.option("--story NAME", "only this story (repeatable)", action="append", default=[])
    client.flag("--list", "list the stories")
    client.flag("--without-marks", "do not expect reports of preparation from the client")
    client.option(
        "--patience SECONDS",
        "longest wait for each action of the client, in seconds (default: 20)",
        type=float,
        default=20.0,
    )
    client.option("--parallel N", "parallel scenarios (default: 8)", type=int, default=8)
    _add_junit(client)


def _add_junit(parser: Parser) -> None:
    parser.option("--junit FILE", "write a JUnit report, for CI")


def _server(arguments: argparse.Namespace) -> int:
    from forewarn.conformance.exchange import ServiceUnderTest  # noqa: PLC0415 - `--help` needs none of it
    from forewarn.conformance.run import run_checks  # noqa: PLC0415 - the same

    target = ServiceUnderTest(arguments.url)
    with _ended_by_signals():
        results = _shown(
            run_checks(target, _hooks(arguments), only=arguments.only), as_json=arguments.json
        )
    return _report(arguments, results, {"url": arguments.url}, f"Scheduled Events at {target.url}")


def _client(arguments: argparse.Namespace) -> int:
    from forewarn.conformance.client_run import (  # noqa: PLC0415 - `--help` needs none of it
        AGENT,
        ClientMissing,
        ClientOptions,
        run_stories,
        stories_named,
    )

    stories = stories_named(arguments.story)
    if arguments.list:
        if arguments.json:
            print_json([{"name": each.name, "title": each.title} for each in stories])
        else:
            for each in stories:
                print(f"{each.name:<18} {each.statement:<5} {each.title}")
        return exit_codes.OK
    words = AGENT if arguments.agent else tuple(arguments.words)
    if not words:
        raise ClientMissing
    options = ClientOptions(
        words,
        marks=not arguments.without_marks,
        patience_s=arguments.patience,
        parallel=arguments.parallel,
    )
    with _ended_by_signals(), closing(run_stories(stories, options)) as running:
        results = _shown(running, as_json=arguments.json)
    command = shlex.join(words)
    return _report(arguments, results, {"command": command}, f"Scheduled Events with {command}")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise SystemExit at SIGTERM or SIGHUP, so that no client is left behind."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hooks(arguments: argparse.Namespace) -> Hooks:
    from forewarn.conformance.agent_trial import with_agent  # noqa: PLC0415 - see `_server`
    from forewarn.conformance.event_trial import Hooks  # noqa: PLC0415 - the same
    from forewarn.conformance.exchange import ServiceUnderTest  # noqa: PLC0415 - the same

    def act(command: str | None) -> Callable[[], None] | None:
        return partial(_act, command) if command else None

    return Hooks(
        schedule=act(arguments.schedule),
        cancel=act(arguments.cancel),
        fail=act(arguments.fail),
        agent=partial(with_agent, ServiceUnderTest(arguments.url)) if arguments.agent else None,
        approve=arguments.approve,
        peer=ServiceUnderTest(arguments.peer) if arguments.peer else None,
        other=ServiceUnderTest(arguments.other) if arguments.other else None,
        timeout_s=arguments.timeout,
    )


def _act(command: str) -> None:
    import subprocess  # noqa: PLC0415 - few commands need it

    try:
        subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=60)  # noqa: S603 - the caller's own
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode("utf-8", "replace").strip()[-500:]
        reason = f"the exit status is {error.returncode}: {message!r}"
        raise ActFailed(command=command, reason=reason) from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ActFailed(command=command, reason=reason_of(error)) from error


def _shown(results: Iterable[Result], *, as_json: bool) -> list[Result]:
    """Print results as they arrive, unless the output is JSON; return all."""
    kept = []
    for result in results:
        kept.append(result)
        if not as_json:
            show(result)
    return kept


def _report(
    arguments: argparse.Namespace, results: list[Result], subject: dict[str, str], name: str
) -> int:
    from forewarn.conformance.run import junit  # noqa: PLC0415 - `--help` needs none of it

    if arguments.junit:
        try:
            Path(arguments.junit).write_text(junit(results, name=name), "utf-8")
        except OSError as error:
            raise ReportUnwritable(path=arguments.junit, reason=error.strerror) from error
    return finish(results, subject, as_json=arguments.json)


def finish(results: list[Result], subject: dict[str, str], *, as_json: bool) -> int:
    """Print the summary of the checks, and return the exit status."""
    from forewarn.conformance.run import Verdict  # noqa: PLC0415 - `--help` needs none of it

    counts = {each.value: sum(r.verdict is each for r in results) for each in Verdict}
    if as_json:
        print_json({**subject, **counts, "checks": [_form(each) for each in results]})
    else:
        print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return exit_codes.REFUSED if counts["failed"] else exit_codes.OK


def show(result: Result) -> None:
    """Print the result of one check."""
    reason = f": {result.reason}" if result.reason else ""
    check = result.check
    print(f"{_MARKS[result.verdict.value]}  {check.statement:<5} {check.title}{reason}", flush=True)
    if result.verdict.value == "failed":
        print(f"      see {_link(check.statement)}", flush=True)


def _link(statement: str) -> str:
    """Return the link to a statement of the contract."""
    return f"docs/reference/contract.md#{statement.lower()}"


def _form(result: Result) -> dict[str, str]:
    return {
        "statement": result.check.statement,
        "link": _link(result.check.statement),
        "title": result.check.title,
        "verdict": result.verdict.value,
        "reason": result.reason,
    }
