"""Runs the checks against a server, and formats the results as JUnit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

from forewarn_base.errors import reason_of
from forewarn_base.values import value
from forewarn_conformance import document_checks, transport_checks  # noqa: F401
from forewarn_conformance.checks import CHECKS, LAST_CHECKS, Check, ConformanceFault, NotApplicable
from forewarn_conformance.event_checks import EVENT_CHECKS
from forewarn_conformance.event_trial import EventTrial, Hooks
from forewarn_conformance.exchange import ServiceUnderTest, TargetUnreachable

S = TypeVar("S")
#: Chapters of the contract, in the order of the report.
ORDER = "EVDAI"


class Verdict(Enum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@value
class Result:
    """One check and its result."""

    check: Check[Any]
    verdict: Verdict
    #: Reason of a failure or omission; empty if the check passed.
    reason: str = ""


def run_checks(
    target: ServiceUnderTest, hooks: Hooks | None = None, *, only: Collection[str] = ()
) -> Iterator[Result]:
    """Run the checks one after another, or `only` the checks of some statements.

    Raises:
        TargetUnreachable: the server does not answer the first check.
    """
    trial = EventTrial(target, hooks or Hooks())
    target.get()
    events = [*_of(EVENT_CHECKS, trial)]
    # Create an event first, so that the checks of documents have an event.
    first = events[:1] if trial.hooks.schedule else []
    ordered = sorted(CHECKS, key=lambda check: ORDER.index(check.statement[0]))
    plan = [*first, *_of(ordered, target), *events[len(first) :]]
    plan += _of(LAST_CHECKS, target)
    return (_run_check(check, run) for check, run in plan if not only or check.statement in only)


def _of(checks: list[Check[S]], subject: S) -> Iterator[tuple[Check[Any], Callable[[], None]]]:
    for check in checks:
        yield check, partial(check.run, subject)


def judged(check: Check[Any], run: Callable[[], None]) -> Result:
    """Run a check, and return its result."""
    try:
        run()
    except ConformanceFault as fault:
        return Result(check, Verdict.FAILED, str(fault))
    except NotApplicable as why:
        return Result(check, Verdict.SKIPPED, str(why))
    return Result(check, Verdict.PASSED)


def _run_check(check: Check[Any], run: Callable[[], None]) -> Result:
    try:
        return judged(check, run)
    except TargetUnreachable as error:
        return Result(check, Verdict.FAILED, f"no answer: {error.facts['reason']}")
    except OSError as error:
        return Result(check, Verdict.FAILED, f"no answer: {reason_of(error)}")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return Result(check, Verdict.FAILED, f"the document cannot be read: {error!r}")


def junit(results: Iterable[Result], *, name: str) -> str:
    """Return the results as JUnit's XML, which CI systems display."""
    suite = ET.Element("testsuite", name=name)
    for result in results:
        case = ET.SubElement(
            suite, "testcase", classname=result.check.statement, name=result.check.title
        )
        if result.verdict is Verdict.FAILED:
            ET.SubElement(case, "failure", message=result.reason)
        elif result.verdict is Verdict.SKIPPED:
            ET.SubElement(case, "skipped", message=result.reason)
    counts = {"tests": len(suite), "failures": len(suite.findall(".//failure"))}
    counts["skipped"] = len(suite.findall(".//skipped"))
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
