"""The suite passes the right server and names what each wrong one does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from forewarn.cli.main import main
from forewarn.conformance.exchange import Target, TargetInvalid
from forewarn.conformance.run import Verdict, junit, run_checks
from forewarn.testing import EmulatorThread
from tests.conformance.wrong_server import Wrong, serving


@pytest.fixture(scope="module")
def right() -> Iterator[str]:
    """An emulator with an event to look at."""
    emulator = EmulatorThread().start()
    try:
        emulator.run_scenario("host-reboot")
        yield emulator.url
    finally:
        emulator.stop()


def failed(url: str) -> dict[str, str]:
    """Return the statements that a server breaks, and how."""
    results = run_checks(Target(url))
    return {each.check.statement: each.reason for each in results if each.verdict is Verdict.FAILED}


def test_right_server_passes_every_check(right: str) -> None:
    """Our own service keeps every statement, and nothing is left out. Source: E, V, D, A, I."""
    results = list(run_checks(Target(right)))
    assert {each.verdict for each in results} == {Verdict.PASSED}, results


def replaced(old: bytes, new: bytes) -> Wrong:
    """Replace bytes of every answer, its length kept right."""

    def wrong(_: bytes, answer: bytes) -> bytes:
        head, _, body = answer.partition(b"\r\n\r\n")
        whole = re.sub(old, new, head + b"\r\n\r\n" + body)
        head, _, body = whole.partition(b"\r\n\r\n")
        length = b"Content-Length: %d" % len(body)
        return re.sub(rb"(?i)content-length: \d+", length, head) + b"\r\n\r\n" + body

    return wrong


def answered(when: bytes, status: bytes) -> Wrong:
    """Answer certain requests with another status, and an empty object."""

    def wrong(request: bytes, answer: bytes) -> bytes:
        if not re.search(when, request):
            return answer
        return b"HTTP/1.1 " + status + b" X\r\nContent-Length: 2\r\n\r\n{}"

    return wrong


def counting() -> Wrong:
    """Show another incarnation each time."""
    count = iter(range(100, 10_000))

    def wrong(request: bytes, answer: bytes) -> bytes:
        number = b'"DocumentIncarnation":%d' % next(count)
        return replaced(rb'"DocumentIncarnation":\d+', number)(request, answer)

    return wrong


WRONG: dict[str, tuple[str, Wrong]] = {
    "no header needed": ("E-2", answered(rb"(?is)^(?!.*\nmetadata:)", b"200")),
    "latest is served": ("E-3", answered(rb"api-version=latest", b"200")),
    "proxies are trusted": ("E-4", answered(rb"X-Forwarded-For", b"200")),
    "no Allow": ("E-5", replaced(rb"(?i)\r\nallow: [^\r]*", b"")),
    "unknown path is fine": ("E-5", answered(rb"nothing-of-the-kind", b"200")),
    "plain text": ("E-7", replaced(rb"(?i)application/json", b"text/plain")),
    "pretty JSON": ("E-7", replaced(rb'":', b'": ')),
    "close is not echoed": ("E-7", replaced(rb"(?i)\r\nconnection: close", b"")),
    "case matters": ("E-8", answered(rb"/Metadata/ScheduledEvents", b"404")),
    "malformed is 500": ("E-8", answered(rb"Metadata true|: -1|^GET\r", b"500")),
    "one version is missing": ("V-1", answered(rb"api-version=2017-11-01", b"400")),
    "more fields than known": ("V-1", replaced(rb'"ResourceType"', b'"More":1,"ResourceType"')),
    "incarnation moves": ("D-1", counting()),
    "ids are numbers": ("D-3", replaced(rb'"EventId":"[^"]+"', b'"EventId":"7"')),
    "another type": ("D-4", replaced(rb'"Reboot"', b'"Explode"')),
    "local time": ("D-7", replaced(rb" GMT", b" CET")),
    "another order": ("D-10", replaced(rb'("EventId":[^,]+),("EventStatus":[^,]+)', rb"\2,\1")),
    "anything is an approval": ("A-2", answered(rb"^POST", b"200")),
    "unknown ids are approved": ("A-3", answered(rb"00000000-0000-4000-8000-000000000000", b"200")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_server_is_named(right: str, name: str) -> None:
    """Each fault fails a check of the statement that it breaks."""
    statement, wrong = WRONG[name]
    host, _, port = right.removeprefix("http://").partition(":")
    with serving((host, int(port)), wrong) as url:
        found = failed(url)
    assert statement in found, found
    assert found[statement]


def test_report_is_for_people_and_for_programs(
    right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines for people, JSON and JUnit for CI, and a status that says whether it passed."""
    assert main(["conformance", right]) == 0
    assert "ok    E-1   GET shows a document" in capsys.readouterr().out
    assert main(["--json", "conformance", right]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["failed"], form["skipped"]) == (0, 0)
    suite = ET.fromstring(junit(run_checks(Target(right)), url=right))
    assert int(suite.attrib["tests"]) == form["passed"]


@pytest.mark.parametrize("url", ["nowhere", "https://127.0.0.1", "http://", "http://x:port"])
def test_address_that_is_none_is_refused(url: str) -> None:
    """A wrong address is the caller's, not the server's fault."""
    with pytest.raises(TargetInvalid):
        Target(url)


def test_server_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is judged where nothing answers."""
    assert main(["conformance", "http://127.0.0.1:9"]) == 3
    assert "cannot be reached" in capsys.readouterr().err
