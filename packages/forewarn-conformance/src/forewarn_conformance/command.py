"""`forewarn conformance`: check a server or a client of Scheduled Events."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from forewarn_base import exit_codes
from forewarn_base.errors import CallerError, PeerError, reason_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import print_json, print_structured
from forewarn_server.cli.parameters import (
    PRINTED,
    Int,
    OutputOptions,
    Seconds,
)

if TYPE_CHECKING:
    from forewarn_conformance.event_trial import Hooks
    from forewarn_conformance.run import Result

conformance = noun_app("conformance")


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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HookOptions:
    """Options for acts on the service under test."""

    schedule: Annotated[
        str | None,
        Parameter(
            metavar="COMMAND",
            help="command that schedules an event for this VM; the suite follows the event",
        ),
    ] = None
    cancel: Annotated[
        str | None,
        Parameter(metavar="COMMAND", help="command that cancels the last scheduled event"),
    ] = None
    fail: Annotated[
        str | None,
        Parameter(metavar="COMMAND", help="command that schedules an event that starts at once"),
    ] = None
    approve: Annotated[bool, Parameter(help="approve the events of --schedule")] = False
    agent: Annotated[
        bool,
        Parameter(
            help="also run Forewarn's agent, which approves an event; the agent uses only host and"
            " port of the address"
        ),
    ] = False
    peer: Annotated[
        str | None,
        Parameter(metavar="URL", help="address of the service for another VM of the group"),
    ] = None
    other: Annotated[
        str | None,
        Parameter(metavar="URL", help="address of the service for a VM of another group"),
    ] = None
    timeout_s: Annotated[
        Seconds,
        Parameter(
            name="--timeout", metavar="SECONDS", help="longest wait for an event (default: 300)"
        ),
    ] = 300.0


HOOKS = HookOptions()


@conformance.command(name="server")
def _server(
    url: Annotated[str, Parameter(name="URL", help="the service, as http://HOST[:PORT]")],
    /,
    *,
    hooks: HookOptions = HOOKS,
    only: Annotated[
        Sequence[str], Parameter(metavar="STATEMENT", help="such as E-7 (repeatable)")
    ] = (),
    junit: Annotated[
        str | None, Parameter(metavar="FILE", help="write a JUnit report, for CI")
    ] = None,
    printed: OutputOptions = PRINTED,
) -> int:
    """Check a server, statement by statement."""
    from forewarn_conformance.exchange import ServiceUnderTest  # noqa: PLC0415 - `--help` needs none of it
    from forewarn_conformance.run import run_checks  # noqa: PLC0415 - the same

    target = ServiceUnderTest(url)
    with _ended_by_signals():
        results = _print_results(
            run_checks(target, _hooks(url, hooks), only=only), as_json=printed.structured
        )
    return _report(
        printed,
        junit,
        results,
        subject={"url": url},
        name=f"Scheduled Events at {target.url}",
    )


@conformance.command(name="client")
def _client(
    *words: Annotated[
        str,
        Parameter(
            name="COMMAND", help="the client's command, after `--`; started for each scenario"
        ),
    ],
    agent: Annotated[bool, Parameter(help="check Forewarn's agent")] = False,
    story: Annotated[
        Sequence[str], Parameter(metavar="NAME", help="only this story (repeatable)")
    ] = (),
    list_: Annotated[bool, Parameter(name="--list", help="list the stories")] = False,
    without_marks: Annotated[
        bool, Parameter(help="do not expect reports of preparation from the client")
    ] = False,
    patience: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            help="longest wait for each action of the client, in seconds (default: 20)",
        ),
    ] = 20.0,
    parallel: Annotated[Int, Parameter(metavar="N", help="parallel scenarios (default: 8)")] = 8,
    junit: Annotated[
        str | None, Parameter(metavar="FILE", help="write a JUnit report, for CI")
    ] = None,
    printed: OutputOptions = PRINTED,
) -> int:
    """Check a client with difficult scenarios."""
    from forewarn_conformance.client_run import (  # noqa: PLC0415 - `--help` needs none of it
        AGENT,
        ClientMissing,
        ClientOptions,
        run_stories,
        stories_named,
    )

    stories = stories_named(story)
    if list_:
        if printed.structured:
            print_structured(
                printed, [{"name": each.name, "title": each.title} for each in stories]
            )
        else:
            for each in stories:
                print(f"{each.name:<18} {each.statement:<5} {each.title}")
        return exit_codes.OK
    command = AGENT if agent else words
    if not command:
        raise ClientMissing
    options = ClientOptions(
        command,
        marks=not without_marks,
        patience_s=patience,
        parallel=parallel,
    )
    with _ended_by_signals(), closing(run_stories(stories, options)) as running:
        results = _print_results(running, as_json=printed.structured)
    line = shlex.join(command)
    return _report(
        printed,
        junit,
        results,
        subject={"command": line},
        name=f"Scheduled Events with {line}",
    )


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


def _hooks(url: str, options: HookOptions) -> Hooks:
    from forewarn_conformance.agent_trial import with_agent  # noqa: PLC0415 - see `_server`
    from forewarn_conformance.event_trial import Hooks  # noqa: PLC0415 - the same
    from forewarn_conformance.exchange import ServiceUnderTest  # noqa: PLC0415 - the same

    def runner_of(command: str | None) -> Callable[[], None] | None:
        return partial(_run_command, command) if command else None

    return Hooks(
        schedule=runner_of(options.schedule),
        cancel=runner_of(options.cancel),
        fail=runner_of(options.fail),
        agent=partial(with_agent, ServiceUnderTest(url)) if options.agent else None,
        approve=options.approve,
        peer=ServiceUnderTest(options.peer) if options.peer else None,
        other=ServiceUnderTest(options.other) if options.other else None,
        timeout_s=options.timeout_s,
    )


def _run_command(command: str) -> None:
    import subprocess  # noqa: PLC0415 - few commands need it

    try:
        subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=60)  # noqa: S603 - the caller's own
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode("utf-8", "replace").strip()[-500:]
        reason = f"the exit status is {error.returncode}: {message!r}"
        raise ActFailed(command=command, reason=reason) from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ActFailed(command=command, reason=reason_of(error)) from error


def _print_results(results: Iterable[Result], *, as_json: bool) -> list[Result]:
    """Print results as they arrive, unless the output is JSON; return all."""
    kept = []
    for result in results:
        kept.append(result)
        if not as_json:
            show(result)
    return kept


def _report(
    printed: OutputOptions,
    path: str | None,
    results: list[Result],
    *,
    subject: dict[str, str],
    name: str,
) -> int:
    from forewarn_conformance.run import junit  # noqa: PLC0415 - `--help` needs none of it

    if path:
        try:
            Path(path).write_text(junit(results, name=name), "utf-8")
        except OSError as error:
            raise ReportUnwritable(path=path, reason=error.strerror) from error
    return finish(results, subject, as_json=printed.structured)


def finish(results: list[Result], subject: dict[str, str], *, as_json: bool) -> int:
    """Print the summary of the checks, and return the exit status."""
    from forewarn_conformance.run import Verdict  # noqa: PLC0415 - `--help` needs none of it

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
