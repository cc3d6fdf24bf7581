"""Running the checks against a server, and the results as text, JSON or JUnit.

No check may be defined in here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from forewarn.conformance.checks import CHECKS, Check, Fault, NotApplicable
from forewarn.conformance.exchange import TargetUnreachable
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forewarn.conformance.exchange import Target


class Verdict(Enum):
    """What a check came to."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@value
class Result:
    """One check, and what was found."""

    check: Check[Any]
    verdict: Verdict
    #: Why it failed or was skipped; empty where it passed.
    reason: str = ""


def run_checks(target: Target, checks: Iterable[Check[Target]] = tuple(CHECKS)) -> Iterator[Result]:
    """Run one check after another.

    Raises:
        TargetUnreachable: nothing answers at the first check.
    """
    answered = False
    for check in checks:
        try:
            check.run(target)
        except Fault as fault:
            yield Result(check, Verdict.FAILED, str(fault))
        except NotApplicable as why:
            yield Result(check, Verdict.SKIPPED, str(why))
        except TargetUnreachable as error:
            if not answered:
                raise
            yield Result(check, Verdict.FAILED, f"there is no answer: {error.facts['reason']}")
        except (KeyError, TypeError, AttributeError) as error:
            yield Result(check, Verdict.FAILED, f"the document cannot be read: {error!r}")
        else:
            yield Result(check, Verdict.PASSED)
        answered = True


def junit(results: Iterable[Result], *, url: str) -> str:
    """Return the results as JUnit's XML, which CI systems show."""
    suite = ET.Element("testsuite", name=f"Scheduled Events at {url}")
    for result in results:
        case = ET.SubElement(
            suite, "testcase", classname=result.check.statement, name=result.check.title
        )
        if result.verdict is Verdict.FAILED:
            ET.SubElement(case, "failure", message=result.reason)
        elif result.verdict is Verdict.SKIPPED:
            ET.SubElement(case, "skipped", message=result.reason)
    counts = {"tests": len(suite), "failures": len(suite.findall(".//failure"))}
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
