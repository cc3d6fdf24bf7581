"""Tickets on the page, for an owner and for an operator."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.page.browser import PROGRAM, Browser
from tests.page.test_page import browser, fill, page, press

__all__ = ["browser", "page"]  # fixtures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; Debian's package has it"),
]
ACTS = "[...document.querySelectorAll('main [data-act]')].map((each) => each.dataset.act)"


@pytest.fixture
def service(page: Browser) -> Iterator[Live]:
    """A service that asks for a token; the page leaves it before it stops."""
    live = Live(replace(SETTINGS, operator=OperatorSettings()))
    operator(live, "PUT", "/v1/topology", FLEET)
    live.enable("web-0", "db-0")
    yield live
    page.run("localStorage.clear()")
    page.problems.clear()  # the browser notes the answer of 401
    page.open("about:blank")
    live.stop()


def operator(live: Live, method: str, path: str, form: object) -> Json:
    """Return the answer to an operator's call."""
    reply = live.call(method, path, form, headers={"Authorization": f"Bearer {TOKEN}"})
    assert reply.status < 300, reply
    return reply.json


def test_owner_answers_reports_and_reads_other_tickets(page: Browser, service: Live) -> None:
    """From home to a report and its answer; what an owner cannot answer has no buttons."""
    form = {"target_kind": "host", "target": "h1", "description": "it leaves"}
    leaves = {"type": "retirement", "due": "2027-06-01T00:00:00Z"}
    retirement = operator(service, "POST", "/v1/tickets", form | leaves)["id"]
    token = service.add_token("shop-ci", Role.OWNER, owner="shop")
    headers = {"Authorization": f"Bearer {token}"}
    report = service.call("POST", "/v1/tickets", form, headers=headers).json["id"]
    operator(service, "POST", f"/v1/tickets/{report}/ask", {"text": "Since when?"})
    page.open("about:blank")
    page.open(f"{service.url}/#/home")
    fill(page, "mouse", "#token", token)
    page.key("Enter")
    press(page, "mouse", f"main [href='#/tickets/{report}']")
    page.see("Since when?")
    press(page, "mouse", "main [data-act=answer_ticket]")
    fill(page, "mouse", "#field-text", "Since noon.")
    press(page, "mouse", "dialog [type=submit]")
    page.see("Since noon.")
    assert set(page.run(ACTS)) == {"answer_ticket", "close_ticket"}
    page.run(f"location.hash = '#/tickets/{retirement}'")
    page.until(f"document.querySelector('h1').innerText.includes('{retirement}')")
    assert page.run(ACTS) == []
