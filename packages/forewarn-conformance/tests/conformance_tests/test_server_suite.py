"""The suite passes the right server and names what each wrong one does."""

import json
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance_tests.wrong_server import Wrong, serving
from forewarn.testing import EmulatorThread
from forewarn_base import exit_codes
from forewarn_conformance.event_trial import Hooks
from forewarn_conformance.exchange import ServiceUnderTest, TargetInvalid
from forewarn_conformance.run import Result, Verdict, junit, run_checks
from forewarn_emulator.options import METADATA, Options
from forewarn_server.cli.main import main


@pytest.fixture(scope="module")
def right() -> Iterator[str]:
    """An emulator with an event to look at."""
    emulator = EmulatorThread().start()
    try:
        emulator.run_scenario("host-reboot")
        yield emulator.url
    finally:
        emulator.stop()


@pytest.fixture(scope="module")
def acting() -> Iterator[EmulatorThread]:
    """An emulator whose events the suite makes itself."""
    topology = Path(__file__).with_name("two_groups.toml").read_text("utf-8")
    options = Options(listen=("127.0.0.1:0",), operator="", topology=topology)
    emulator = EmulatorThread(replace(options, topology_name="two_groups.toml")).start()
    try:
        yield emulator
    finally:
        emulator.stop()


def failures(results: Iterable[Result]) -> dict[str, str]:
    """Return the statements that are broken, and how."""
    return {each.check.statement: each.reason for each in results if each.verdict is Verdict.FAILED}


def hooked(emulator: EmulatorThread, url: str = "", *only: str) -> Iterator[Result]:
    """Run all checks with every hook but the agent's; waiting moves the emulator's clock."""
    made: list[str] = []

    def make(cause: str) -> None:
        made.append(emulator.ask(cause, "h1", duration_s=60))

    def at(vm: str) -> ServiceUnderTest:
        return ServiceUnderTest(f"{url or emulator.url}?vm={vm}", pause=emulator.advance)

    hooks = Hooks(
        schedule=lambda: make("host-reboot"),
        cancel=lambda: emulator.cancel(made[-1]),
        fail=lambda: make("hardware-failure"),
        approve=True,
        peer=at("web-2"),
        other=at("db-1"),
    )
    yield from run_checks(at("web-1"), hooks, only=only)
    emulator.advance("1h")  # whatever is left of a wrong server's event


def test_right_server_passes_every_check(right: str) -> None:
    """Our own service keeps every statement of what can be read. Source: E-1, V-1, D-1, A-1."""
    results = list(run_checks(ServiceUnderTest(right)))
    assert {each.verdict for each in results} <= {Verdict.PASSED, Verdict.SKIPPED}, results


def test_right_server_passes_with_hooks(acting: EmulatorThread) -> None:
    """An event is announced, approved, started, over; nothing is left out but the agent.

    Source: L-1, L-3, L-4, L-5, N-1, S-1, S-4, A-1, A-2, A-3, D-1, D-3.
    """
    results = list(hooked(acting))
    left_out = [each.check.statement for each in results if each.verdict is Verdict.SKIPPED]
    assert not failures(results)
    assert left_out == ["C-2", "E-6"]


def test_limited_server_is_asked_more_slowly() -> None:
    """A server that limits requests is judged like any other. Source: E-6, A-2."""
    options = Options(
        listen=("127.0.0.1:0",),
        operator="",
        metadata=replace(METADATA, rate_per_s=5.0, rate_burst=10),
    )
    emulator = EmulatorThread(options, stopped=False).start()
    try:
        results = list(run_checks(ServiceUnderTest(emulator.url), only=["A-2", "E-3", "E-6"]))
    finally:
        emulator.stop()
    passed = [each.check.statement for each in results if each.verdict is Verdict.PASSED]
    assert passed == ["E-3", "A-2", "E-6"]


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


def asked(when: bytes, wrong: Wrong) -> Wrong:
    """Be wrong for certain requests alone."""
    return lambda request, answer: wrong(request, answer) if re.search(when, request) else answer


GUID = rb'("EventId":")[^-"]+'
STARTED = rb'("EventStatus":")Scheduled(".*?"NotBefore":)"[^"]*"'
WRONG: dict[str, tuple[str, Wrong]] = {
    "no header needed": ("E-2", answered(rb"(?is)^(?!.*\nmetadata:)", b"200")),
    "latest is served": ("E-3", answered(rb"api-version=latest", b"200")),
    "proxies are trusted": ("E-4", answered(rb"X-Forwarded-For", b"200")),
    "no Allow": ("E-5", replaced(rb"(?i)\r\nallow: [^\r]*", b"")),
    "unknown path is fine": ("E-5", answered(rb"nothing-of-the-kind", b"200")),
    "plain text": ("E-7", replaced(rb"(?i)application/json", b"text/plain")),
    "pretty JSON": ("E-7", replaced(rb'":', b'": ')),
    "the answer lacks Connection: close": ("E-7", replaced(rb"(?i)\r\nconnection: close", b"")),
    "case matters": ("E-8", answered(rb"/Metadata/ScheduledEvents", b"404")),
    "malformed is 500": ("E-8", answered(rb"Metadata true|: -1|^GET\r", b"500")),
    "one version is missing": ("V-1", answered(rb"api-version=2017-11-01", b"400")),
    "more fields than known": ("V-1", replaced(rb'"ResourceType"', b'"More":1,"ResourceType"')),
    "incarnation moves": ("D-1", counting()),
    "ids are numbers": ("D-3", replaced(rb'"EventId":"[^"]+"', b'"EventId":"7"')),
    "another type": ("D-4", replaced(rb'"Reboot"', b'"Explode"')),
    "local time": ("D-7", replaced(rb" GMT", b" CET")),
    "another id": ("V-3", asked(rb"2019-08-01", replaced(GUID, rb"\g<1>00000000"))),
    "the preview of 2016 is served": ("V-5", answered(rb"2016|/latest/", b"200")),
    "no list of events": ("D-2", replaced(rb'"Events":\[.*\]', b'"Events":null')),
    "another source": ("D-8", replaced(rb'"EventSource":"\w+"', b'"EventSource":"Nobody"')),
    "a duration below -1": ("D-9", replaced(rb'(InSeconds":)-?\d+', rb"\g<1>-2")),
    "the VM has no name": ("I-1", replaced(rb'"name":"[^"]+"', b'"name":""')),
    "a leaf is another": ("I-2", asked(rb"format=text", replaced(rb"(?s)(\r\n\r\n).*", rb"\1x"))),
    "versions in no order": ("I-3", replaced(rb'(ersions":\[)', rb'\1"9999-12-31",')),
    "numbers are numbers": ("I-4", replaced(rb'(FaultDomain":)"(\d+)"', rb"\1\2")),
    "null without a hook": ("D-7", replaced(STARTED, rb"\1Started\2null")),
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
        found = failures(run_checks(ServiceUnderTest(url), only=[statement]))
    assert statement in found, found
    assert found[statement]


def test_report_is_for_people_and_for_programs(
    right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines for people, JSON and JUnit for CI, and a status that says whether it passed."""
    assert main(["conformance", "server", right]) == 0
    assert "ok    E-1   GET returns a document" in capsys.readouterr().out
    assert main(["--json", "conformance", "server", right]) == 0
    form = json.loads(capsys.readouterr().out)
    assert form["failed"] == 0
    suite = ET.fromstring(junit(run_checks(ServiceUnderTest(right)), name=right))
    assert int(suite.attrib["tests"]) == form["passed"] + form["skipped"]


def early() -> Wrong:
    """Show a NotBefore five minutes after now."""

    def wrong(request: bytes, answer: bytes) -> bytes:
        date = re.search(rb"\r\nDate: ([^\r]*)", answer)
        assert date
        soon = parsedate_to_datetime(date[1].decode()) + timedelta(minutes=5)
        text = format_datetime(soon, usegmt=True).encode()
        return replaced(rb'"NotBefore":"[^"]+"', b'"NotBefore":"%s"' % text)(request, answer)

    return wrong


def stale() -> Wrong:
    """Show one incarnation for ever."""
    return replaced(rb'"DocumentIncarnation":\d+', b'"DocumentIncarnation":7')


#: The approval of an id that there is.
FOREIGN = rb'"EventId": "(?!00000000)'
WRONG_EVENTS: dict[str, tuple[str, Wrong]] = {
    "notice is short": ("N-1", early()),
    "incarnation stands": ("D-1", stale()),
    "approval has a body": ("A-1", replaced(rb"(?s)(Length: 0\r\n.*\r\n\r\n)$", rb"\1OK")),
    "lower case is refused": ("A-1", answered(rb"(?s)^POST.*EventId\W+[0-9a-f-]*[a-f]", b"400")),
    "Started is Active": ("L-1", replaced(rb'"Started"', b'"Active"')),
    "each VM sees its own": ("S-1", asked(rb"vm=web-2", replaced(rb"web-1", b"web-2"))),
    "failures are announced": ("L-4", replaced(rb'"Started"', b'"Scheduled"')),
    "null once started": ("D-7", replaced(rb'"NotBefore":""', b'"NotBefore":null')),
    "a foreign id is told apart": ("S-4", asked(rb"vm=db-1", answered(FOREIGN, b"403"))),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_EVENTS)
def test_wrong_event_is_named(acting: EmulatorThread, name: str) -> None:
    """What is wrong only while an event lives is named, too."""
    statement, wrong = WRONG_EVENTS[name]
    host, _, port = acting.url.removeprefix("http://").partition(":")
    with serving((host, int(port)), wrong) as url:
        found = failures(hooked(acting, url, statement))
    assert statement in found, found


@pytest.mark.parametrize("url", ["nowhere", "https://127.0.0.1", "http://", "http://x:port"])
def test_address_that_is_none_is_refused(url: str) -> None:
    """A wrong address is the caller's, not the server's fault."""
    with pytest.raises(TargetInvalid):
        ServiceUnderTest(url)


def test_server_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is judged where nothing answers."""
    assert main(["conformance", "server", "http://127.0.0.1:9"]) == 3
    assert "cannot be reached" in capsys.readouterr().err


def test_server_that_refuses_is_said_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be reached is named with the reason, without an error number."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert main(["conformance", "server", url]) == exit_codes.UNREACHABLE
    assert f"{url} cannot be reached: connection refused." in capsys.readouterr().err
