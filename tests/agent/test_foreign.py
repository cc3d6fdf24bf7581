"""An agent before something that is not the metadata service, or says what no VM expects."""

import contextlib
from pathlib import Path

import pytest

from forewarn.agent.sdk.dialogue import (
    Dialogue,
    RequestRejected,
    RequestUnsigned,
    TemporarilyUnavailable,
    pause_s,
)
from forewarn.agent.sdk.http import HttpResponse
from forewarn_base.errors import PeerError
from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Service, status

FAR_MS = 4_000_000_000_000
PAGE = b"<html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("answered", "advice"),
    [
        (405, RequestRejected.advice),
        (401, RequestUnsigned.advice),
        (403, RequestUnsigned.advice),
    ],
)
def test_refused_poll_is_logged_with_what_to_do(answered: int, advice: str, tmp_path: Path) -> None:
    """The advice is that of the error; a missing signature names the proxy agent. Source: Z-10."""
    with Service() as service:
        service.faults = [status(answered)] * 2
        with Agent(tmp_path, service.endpoint) as agent:
            agent.until_said("poll-failed")
            assert advice in agent.log()


def test_page_of_another_server_is_neither_name_nor_document(tmp_path: Path) -> None:
    """A portal that answers everything with 200 is asked again until the service is there."""
    with Service() as service:
        service.faults = [
            status(200, PAGE),
            status(200, PAGE),
            status(302, Location="http://[::1]"),
        ]
        with Agent(tmp_path, service.endpoint) as agent:
            agent.until_said("poll-failed")
            agent.until_said("named")
            service.show(event(not_before_ms=FAR_MS))
            service.until(lambda: service.approvals == ["E1"], "the approval")
            assert "name=vm_0" in agent.log()


@pytest.mark.parametrize(
    "odd",
    [
        event(description="\ud800 half a letter", not_before_ms=FAR_MS),
        event(description="x" * 200_000, not_before_ms=FAR_MS),
        event(description="a\0b\nc", event_id="E/../1", not_before_ms=FAR_MS),
    ],
    ids=["half a letter", "long", "control characters"],
)
def test_hook_is_started_whatever_the_event_says(tmp_path: Path, odd: ScheduledEvent) -> None:
    """The environment of a process cannot hold all that JSON can."""
    with Service() as service, Agent(tmp_path, service.endpoint) as agent:
        service.show(odd)
        service.until(lambda: service.approvals == [odd.event_id.upper()], "the approval")
        agent.until_acts("prepare")


REFUSED = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request.",'
    b'"newest-versions":["2019-01-01","2017-11-01","2017-08-01"]}'
)


@pytest.mark.parametrize(
    ("code", "body", "lowered"),
    [
        pytest.param(400, REFUSED, "2019-01-01", id="documented"),
        pytest.param(
            404, b'{ "error": "Not found. Invalid version requested" }', "2019-08-01", id="404"
        ),
        pytest.param(400, b'{"version":' + b"[" * 100_000, "", id="deep"),
        pytest.param(400, b"<p>nginx version 1.2</p>", "", id="page"),
        pytest.param(404, b'{"error":"no such version of the page"}', "", id="other 404"),
        pytest.param(
            400, b'{"error":"odd","newest-versions":["2020-07-01"]}', "", id="names the one asked"
        ),
    ],
)
def test_only_the_documented_answer_lowers_the_version(
    code: int, body: bytes, lowered: str
) -> None:
    """An older version shows neither Preempt nor Terminate. Source: E-3, V-2."""
    dialogue = Dialogue(("http://127.0.0.1",))
    newest = dialogue.version
    dialogue.poll_request(0)
    with contextlib.suppress(PeerError):
        dialogue.take_poll(HttpResponse(code, {}, body=body), 0)
    assert dialogue.version == (lowered or newest)


def test_version_climbs_again() -> None:
    """Seconds of refusals do not leave a VM with an old version until its agent restarts."""
    dialogue = Dialogue(("http://127.0.0.1",))
    newest = dialogue.version
    good = HttpResponse(200, {}, body=b'{"DocumentIncarnation":1,"Events":[]}')
    refused = HttpResponse(400, {}, body=REFUSED)
    dialogue.poll_request(0)
    assert dialogue.take_poll(refused, 0) is None
    assert b"2019-01-01" in dialogue.poll_request(0)
    assert dialogue.take_poll(good, 0) is not None
    assert newest.encode() in dialogue.poll_request(10_000)  # refused again, without a word
    assert b"2019-01-01" in dialogue.approval_request(("E1",))
    assert dialogue.take_poll(refused, 10_000) is None
    assert b"2019-01-01" in dialogue.poll_request(29_000)
    assert newest.encode() in dialogue.poll_request(30_000)  # no answer at all
    assert b"2019-01-01" in dialogue.poll_request(31_000)
    assert newest.encode() in dialogue.poll_request(70_000)
    assert dialogue.take_poll(good, 70_000) is not None
    assert dialogue.version == newest


@pytest.mark.parametrize("answered", [429, 503])
def test_pause_a_service_asks_for_costs_no_preempt(answered: int) -> None:
    """A Preempt gives 30 seconds; an obedient minute would miss it. Source: C-7, N-1."""
    dialogue = Dialogue(("http://127.0.0.1",))
    dialogue.poll_request(0)
    with pytest.raises(TemporarilyUnavailable) as caught:
        dialogue.take_poll(HttpResponse(answered, {"retry-after": "60"}, body=b""), 0)
    assert pause_s(1, asked_s=caught.value.retry_after_s, jitter=1.0) < 6
    assert pause_s(50, jitter=1.0) <= 5


def test_scale_set_that_does_not_fit_is_told_of(tmp_path: Path) -> None:
    """A setting that gives no further name leaves the names there are."""
    with Service() as service, Agent(tmp_path, service.endpoint, agent='scale_set = "x"') as agent:
        agent.until_said("named")
