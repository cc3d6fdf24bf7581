"""Owners choose on the page when declared work starts; operators choose for them. Source: T-2."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.page.browser import PROGRAM, Browser
from tests.page.test_page import AXE, axe_findings, browser, fill, page, press

__all__ = ["browser", "page"]  # fixtures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; Debian's package has it"),
]
CHOOSE, SUBMIT = "main [data-act=choose_starts]", "dialog [type=submit]"
DECLARATION = "/v1/declarations/m-1"


@pytest.fixture
def service(page: Browser) -> Iterator[Live]:
    """A service with a declared maintenance of a host of shop, and one that it shares."""
    live = Live(replace(SETTINGS, operator=OperatorSettings()))
    groups = {**FLEET["groups"], "db": {"owner": "bank"}}
    operator(live, "PUT", "/v1/topology", {**FLEET, "groups": groups})
    live.enable("web-0", "db-0")
    operator(live, "PUT", "/v1/policy", {"windows": {"nights": {"from": "01:00", "to": "05:00"}}})
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT30M"}
    operator(live, "POST", "/v1/maintenances", {**form, "reason": "firmware"})
    operator(live, "POST", "/v1/maintenances/m-1/declare", {})
    live.planned()
    yield live
    page.run("localStorage.clear(); sessionStorage.clear()")
    page.problems.clear()  # the browser notes the answers of 401 and 409
    page.open("about:blank")
    live.stop()


def operator(live: Live, method: str, path: str, form: object = None) -> Json:
    """Return the answer to an operator's call."""
    reply = live.call(method, path, form, headers={"Authorization": f"Bearer {TOKEN}"})
    assert reply.status < 300, reply
    return reply.json


def resource(live: Live, host: str, owner: str = "shop") -> Json:
    """Return an owner's resource of the declaration, as an operator sees it."""
    live.planned()
    every = operator(live, "GET", DECLARATION)["declaration"]["resources"]
    [one] = [each for each in every if (each["host"], each["owner"]) == (host, owner)]
    return one


def sign_in(
    page: Browser, live: Live, view: str, token: str = "", *, expected: str = "m-1"
) -> None:
    """Open a view as shop."""
    page.open("about:blank")
    page.open(f"{live.url}/{view}")
    fill(page, "mouse", "#token", token or live.add_token("shop-ci", Role.OWNER, owner="shop"))
    page.key("Enter")
    page.see(expected)


def row(host: str) -> str:
    """Return the selector of the button that chooses for a host."""
    return f"{CHOOSE}[aria-label$=' {host}']"


def test_owner_chooses_an_opening_in_four_presses(page: Browser, service: Live) -> None:
    """A host, a day of the calendar, a time, and the button."""
    sign_in(page, service, "#/home")
    page.see("2 hosts without a choice")
    assert page.run("document.querySelector('main').innerText.includes('bank')") is False
    press(page, "mouse", row("h2"))
    page.until("document.querySelector('dialog [data-day]')")
    assert page.run("document.querySelector('dialog').innerText.includes('owners')") is False
    fill(page, "mouse", "#choice-at", "tomorrow")
    page.see("This cannot be read as a time.")
    fill(page, "mouse", "#choice-at", "2027-01-17T02:00")
    page.see("The zone is missing")
    press(page, "mouse", "dialog [data-day='2027-01-17']")
    press(page, "mouse", "dialog [data-opening='2027-01-17T02:00:00.000Z']")
    page.see("Possible: the work starts on Sunday, 17 January 2027, 02:00 UTC")
    press(page, "mouse", SUBMIT)
    page.see("1 host without a choice")
    page.see("Chosen by shop-ci")
    assert resource(service, "h2")["chosen_start"] == "2027-01-17T02:00:00Z"


def test_start_is_said_in_local_time_and_in_utc(page: Browser, service: Live) -> None:
    """Both, as on the command line; with times in UTC it is not said twice. Source: T-16."""
    page.send("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    sign_in(page, service, "#/home")
    press(page, "mouse", "#clock")
    press(page, "mouse", row("h2"))
    page.until("document.querySelector('dialog [data-day]')")
    fill(page, "mouse", "#choice-at", "2027-01-17T02:00:00Z")
    page.see("starts on Sunday, 17 January 2027, 07:30 UTC+05:30 (2027-01-17 02:00 UTC)")
    page.key("Escape")
    page.until("!document.querySelector('dialog[open]')")
    press(page, "mouse", "#clock")
    press(page, "mouse", row("h2"))
    page.until("document.querySelector('dialog [data-day]')")
    fill(page, "mouse", "#choice-at", "2027-01-17T02:00:00Z")
    page.see("starts on Sunday, 17 January 2027, 02:00 UTC.")
    page.send("Emulation.setTimezoneOverride", timezoneId="")


def test_first_view_of_owners_is_home_and_none_is_empty(page: Browser, service: Live) -> None:
    """After signing in without an address; the view of work shows the owner's operations."""
    sign_in(page, service, "")
    page.see("2 hosts without a choice")
    assert page.run("document.querySelector('#views [aria-current]').innerText") == "Home"
    operator(service, "POST", "/v1/vms/web-1/reboot", {})
    for view, text in {"#/work": "op-2", "#/operations/op-2": "Why it waits", "#/": "m-1"}.items():
        page.run(f"location.hash = '{view}'")
        page.see(text)
    assert page.problems == page.problems[:1]  # the answer of 401 before signing in


def test_refused_time_has_the_nearest_openings_as_buttons(page: Browser, service: Live) -> None:
    """By keyboard, on a phone, where nothing has to be scrolled sideways. Source: T-2."""
    page.resize(390, 844, phone=True)
    sign_in(page, service, "#/home")
    press(page, "keyboard", row("h2"))
    page.tab_to("dialog [data-day='2027-01-16']")
    page.key("ArrowRight")
    page.key("ArrowDown")
    page.until("document.activeElement.dataset.day === '2027-01-24'")
    fill(page, "keyboard", "#choice-at", "2027-01-24T12:00:00Z")
    page.key("Enter")
    page.see("Not possible: no window is open")
    wide = "[...document.querySelectorAll('html, dialog, .month')].filter((each) =>"
    assert page.run(f"{wide} each.scrollWidth > each.clientWidth).length") == 0
    press(page, "keyboard", "[role=status] [data-opening='2027-01-25T01:00:00.000Z']")
    page.see("Possible: the work starts on Monday, 25 January")
    page.tab_to(SUBMIT)
    page.key("Enter")
    page.see("1 host without a choice")
    assert resource(service, "h2")["chosen_start"] == "2027-01-25T01:00:00Z"


def test_owner_hands_back_and_operator_chooses_for_another(page: Browser, service: Live) -> None:
    """On a shared host each choice is for one owner alone; the operator sees both. Source: T-2."""
    sign_in(page, service, "#/home")
    press(page, "mouse", row("h1"))
    page.see("Other owners have VMs on the host")
    press(page, "mouse", "dialog [value=now]")
    page.see("at the earliest, but only if the other owners on the host")
    press(page, "mouse", "dialog [value=release]")
    press(page, "mouse", SUBMIT)
    page.see("Handed back")
    assert resource(service, "h1", "bank")["state"] == "open"
    press(page, "mouse", "#sign-out")
    page.see("Sign in to Forewarn")
    sign_in(page, service, "#/declarations", TOKEN)
    press(page, "mouse", "main [aria-label='Choose a time for bank on h1']")
    press(page, "mouse", "dialog [value=now]")
    page.see("the work starts once its notice is over")
    press(page, "mouse", "#choice-approve")
    press(page, "mouse", SUBMIT)
    page.see("the choice approves the event")
    one = resource(service, "h1", "bank")
    assert (one["decision"], one["approves"], one["chosen_by"]) == ("now", True, "anna")


def test_emergency_offers_no_time(page: Browser, service: Live) -> None:
    """Only as soon as possible, and handing back: an opening cannot be chosen."""
    operator(service, "POST", "/v1/maintenances/m-1/cancel", {})
    form = {"cause": "host-reboot", "hosts": ["h2"], "duration": "PT30M"}
    operator(service, "POST", "/v1/maintenances", {**form, "reason": "fire"})
    declared = {"reason": "fire", "hand_back": "PT1H"}
    operator(service, "POST", "/v1/maintenances/m-2/declare-emergency", declared)
    sign_in(page, service, "#/home", expected="m-2")
    press(page, "mouse", row("h2"))
    page.see("In an emergency, a time cannot be chosen.")
    ways = "[...document.querySelectorAll('dialog [name=way]')].map((each) => each.value)"
    assert page.run(ways) == ["now", "release"]
    press(page, "mouse", SUBMIT)
    page.see("the work starts once its notice is over")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is missing")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_a_choice(page: Browser, service: Live, theme: str) -> None:
    """Neither in the list, nor in the calendar and a refusal."""
    sign_in(page, service, "#/home")
    page.run(f"document.documentElement.dataset.theme = {theme!r}")
    assert axe_findings(page) == []
    press(page, "mouse", row("h1"))
    fill(page, "mouse", "#choice-at", "2027-01-24T12:00:00Z")
    page.see("Not possible")
    assert axe_findings(page) == []


def test_owner_reports_a_broken_gpu_in_five_actions(page: Browser, service: Live) -> None:
    """The button, the VM, the part, what is wrong, and sending it. Source: T-9."""
    sign_in(page, service, "#/home")
    press(page, "mouse", "main [data-act=open_ticket]")
    press(page, "mouse", SUBMIT)
    page.see("name a VM or host")
    fill(page, "mouse", "#field-target", "web-1")
    page.until("document.querySelector('dialog .suggestions li')", "a suggestion")
    press(page, "mouse", SUBMIT)
    page.see("describe the fault")
    page.until("document.querySelector('dialog .suggestions').hidden", "no suggestion is left")
    page.run(
        "Object.assign(document.querySelector('#field-category'), { value: 'gpu' })"
        ".dispatchEvent(new Event('change', { bubbles: true }))"
    )
    fill(page, "mouse", "#field-description", "GPU 3 has fallen off the bus")
    press(page, "mouse", SUBMIT)
    page.see("The fault is reported as ticket")
    page.until("document.querySelector('main').innerText.includes('fallen off the bus')")
    [ticket] = operator(service, "GET", "/v1/tickets")["tickets"]
    assert (ticket["target"], ticket["category"], ticket["host"]) == ("web-1", "gpu", "h2")
    assert page.run(f"Boolean(document.querySelector('#notes [href$={ticket['id']}]'))")
    page.run("location.hash = '#/hosts/h2'")
    press(page, "mouse", "main [data-act=open_ticket]")
    page.until("document.querySelector('#field-target')?.value === 'h2'")
    page.key("Escape")


def test_owner_finds_last_months_availability_in_two_presses(page: Browser, service: Live) -> None:
    """With each disturbance of the month. Source: T-13."""
    operator(service, "POST", "/v1/hosts/h2/fail", {})
    service.advance(3600)
    operator(service, "POST", "/v1/hosts/h2/repair", {})
    service.advance(30 * 86400)
    sign_in(page, service, "#/home")
    press(page, "mouse", "nav [href='#/availability']")
    page.see("Availability in 2027-02")
    press(page, "mouse", "main [href='#/availability?month=2027-01']")
    page.see("Availability in 2027-01")
    page.until("document.querySelector('main table')")
    text = page.run("document.querySelector('main').innerText").splitlines()
    assert any("web-1" in each and "1 h 00 min" in each for each in text), text
    assert not any("bank" in each for each in text)
    assert not AXE.exists() or axe_findings(page) == []


def test_owner_asks_for_a_later_deadline_and_operator_grants(page: Browser, service: Live) -> None:
    """Four actions: the button, the days, the reason, and asking. Source: T-4.

    Operators see on every view that a request waits, and which choice a grant drops.
    """
    choice = {"vm": "web-1", "at": "2027-01-17T02:00:00Z"}
    operator(service, "POST", "/v1/declarations/m-1/choices", {"choices": [choice]})
    sign_in(page, service, "#/home")
    press(page, "keyboard", "main [data-act=ask_deferral][aria-label$=' h2']")
    press(page, "keyboard", "dialog .buttons button:nth-child(2)")
    fill(page, "keyboard", "#defer-reason", "the quarter ends")
    press(page, "keyboard", SUBMIT)
    page.see("is asked for: the quarter ends")
    assert resource(service, "h2")["deferral"]["until"] == "2027-02-12T08:00:00Z"
    assert not AXE.exists() or axe_findings(page) == []
    press(page, "mouse", "#sign-out")
    page.see("Sign in to Forewarn")
    sign_in(page, service, "#/maintenances", TOKEN)
    page.see("1 request for a later deadline waits for an answer.")
    press(page, "mouse", "#deferrals")
    press(page, "mouse", "main [data-act=grant_deferral]")
    press(page, "mouse", SUBMIT)
    page.see("was granted")
    page.see("to start on Sunday, 17 January 2027, 02:00 UTC no longer counts")
    assert resource(service, "h2")["hand_back_deadline"] == "2027-02-12T08:00:00Z"


def test_owner_names_a_test_group_and_holds_the_others(page: Browser, service: Live) -> None:
    """The list says what comes first, and why the others are held. Source: T-8."""
    owners = {"db": {"owner": "bank"}, "trial": {"owner": "shop"}}
    vms = {**FLEET["vms"], "trial-0": {"host": "h1", "group": "trial"}}
    fleet = {**FLEET, "groups": {**FLEET["groups"], **owners}, "vms": vms}
    operator(service, "PUT", "/v1/topology", fleet)
    sign_in(page, service, "#/home")
    press(page, "mouse", "main [data-act=name_first_group]")
    press(page, "mouse", "[data-act=copy_command]")
    line = page.until("document.querySelector('.command')?.textContent")
    assert line.startswith("forewarn declaration test-first m-1 --none")
    fill(page, "mouse", "#field-group", "trial")
    press(page, "mouse", SUBMIT)
    page.see("Test first: group trial on h1, then 1 d of observation")
    press(page, "mouse", "main [data-act=hold_hosts]")
    fill(page, "mouse", "#field-reason", "errors on h1")
    press(page, "mouse", SUBMIT)
    page.see("The owner's other hosts are held: errors on h1.")
    assert not page.run("document.querySelector('main [data-act=hold_hosts]')")
    assert not AXE.exists() or axe_findings(page) == []
    press(page, "mouse", "main [data-act=resume_hosts]")
    press(page, "mouse", SUBMIT)
    page.until("document.querySelector('main [data-act=hold_hosts]')")
    [order] = operator(service, "GET", DECLARATION)["declaration"]["first_groups"]
    assert (order["owner"], order["group"], order["held"]) == ("shop", "trial", "")
