"""Test first: the hosts of an owner's test group come before its other hosts. Source: T-8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn_core.rules.blockers import UNTIL_START, Blocker, Code, Meaning
from forewarn_core.rules.members import SecondsKind, member, members
from forewarn_core.rules.site import Earliest, Phase, Site

#: What work waits for. It names no owner, because other owners on the host may read it.
TEST = "the test of an owner on other hosts"
TEST_FIRST = Code(
    "test-first",
    Meaning(
        "{who} waits for {subject}",
        "An owner on the host has named a test group, whose hosts come first.",
        "The work on these hosts has ended, and the owner's observation period is over.",
        UNTIL_START,
        clears_early=True,
    ),
)


@members
class TestFirstMembers:
    """How long a policy lets owners observe their test group."""

    __slots__ = ()

    #: Longest time between the test of an owner and the work on its other hosts; 0: no tests.
    observation_max_s: int = field(
        default=3 * 86_400,
        metadata=member(
            "longest_observation",
            SecondsKind(),
            "Longest time that an owner may observe its test group before its other hosts are "
            "worked on (default: 3 days; 0 allows no test groups).",
        ),
    )


def blockers(_: TestFirstMembers, site: Site) -> Iterator[Blocker]:
    """Yield the tests that are not over, or not observed long enough, at the start of the work."""
    for until_ms in site.tests():
        if not until_ms or until_ms > site.start_ms:
            yield Blocker(TEST_FIRST, TEST, site.since_ms, until_ms)


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an owner chooses a start before its tests are observed."""
    if site.tested_ms is None:
        text = "choose a time for the hosts of the test group first"
        yield Blocker(TEST_FIRST, "", site.since_ms, text=text)
    elif site.start_ms < site.tested_ms:
        text = "the test before it would not be observed"
        yield Blocker(TEST_FIRST, "", site.since_ms, text=text)


def earliest(_: TestFirstMembers, site: Site) -> Iterator[Earliest]:
    """Yield the end of each observation period."""
    for until_ms in site.tests():
        yield Phase.START, until_ms, TEST_FIRST, TEST
