"""`forewarn conformance`: whether a server speaks Scheduled Events, statement by statement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forewarn import exit_codes
from forewarn.cli.output import print_json
from forewarn.errors import CallerError

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import Commands
    from forewarn.conformance.run import Result

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


class ReportUnwritable(CallerError):
    """A report that cannot be written where it should be."""

    code = "conformance-report-unwritable"
    message = "{path} cannot be written: {reason}."
    advice = "Name a file in a directory that exists and can be written."


def add_commands(commands: Commands) -> None:
    """Add `conformance`."""
    conformance = commands.command("conformance", run=_conformance, remote=False)
    conformance.add_argument("url", metavar="URL", help="the service, as http://HOST[:PORT]")
    conformance.add_argument("--junit", metavar="FILE", help="write a JUnit report, for CI")


def _conformance(arguments: argparse.Namespace) -> int:
    from forewarn.conformance.exchange import Target  # noqa: PLC0415 - `--help` needs none of it
    from forewarn.conformance.run import junit, run_checks  # noqa: PLC0415 - the same

    results = []
    for result in run_checks(Target(arguments.url)):
        results.append(result)
        if not arguments.json:
            show(result)
    if arguments.junit:
        try:
            Path(arguments.junit).write_text(junit(results, url=arguments.url), "utf-8")
        except OSError as error:
            raise ReportUnwritable(path=arguments.junit, reason=error.strerror) from error
    return finish(results, {"url": arguments.url}, as_json=arguments.json)


def finish(results: list[Result], subject: dict[str, str], *, as_json: bool) -> int:
    """Print what checks came to in all, and return the exit status."""
    from forewarn.conformance.run import Verdict  # noqa: PLC0415 - `--help` needs none of it

    counts = {each.value: sum(r.verdict is each for r in results) for each in Verdict}
    if as_json:
        print_json({**subject, **counts, "checks": [_form(each) for each in results]})
    else:
        print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return exit_codes.REFUSED if counts["failed"] else exit_codes.OK


def show(result: Result) -> None:
    """Print what one check came to."""
    reason = f": {result.reason}" if result.reason else ""
    check = result.check
    print(f"{_MARKS[result.verdict.value]}  {check.statement:<5} {check.title}{reason}", flush=True)


def _form(result: Result) -> dict[str, str]:
    return {
        "statement": result.check.statement,
        "title": result.check.title,
        "verdict": result.verdict.value,
        "reason": result.reason,
    }
