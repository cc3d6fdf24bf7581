"""The tasks of an operator at night, done on the page by mouse, keyboard and touch."""

from itertools import cycle
from typing import TypeAlias

import pytest

from tests.api.live import Live
from tests.page.browser import PROGRAM, Browser
from tests.page.test_page import AXE, axe_findings, browser, fill, page, press, service, show

__all__ = ["browser", "page", "service"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; Debian's package has it"),
]

FIRST = "h2 [href='#/maintenances/m-1']"
#: Task -> what is pressed from the start page, fields of the dialog, and what is then seen.
TASKS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "progress and end": ((), {}, "Planned end: "),
    "why m-1 waits": ((FIRST,), {}, "has not approved event"),
    "who has not approved": (("#unapproved", "td [href='#/operations/op-2']"), {}, "group db"),
    "remind the owners": (
        ("#unapproved", "[data-act=remind]", "dialog [type=submit]"),
        {},
        "Copied.",
    ),
    "postpone for an owner": (
        (FIRST, "main [data-act=postpone_maintenance]", "dialog [type=submit]"),
        {"hosts": "h2", "until": "+3h", "by": "bank"},
        "Postpone hosts of m-1: done.",
    ),
    "pause": (
        ("main [data-act=pause_maintenance]", "dialog [type=submit]"),
        {"reason": "incident"},
        "resume m-1, which is paused (incident)",
    ),
    "resume": (
        (FIRST, "main [data-act=resume_maintenance]", "dialog [type=submit]"),
        {},
        "Resume m-1: done.",
    ),
    "which groups never poll": (
        ("nav [href='#/vms']", "[href='#/groups?enabled=false']"),
        {},
        "images",
    ),
    "what a VM reads": (
        ("nav [href='#/vms']", "main [href='#/vms/web-0']"),
        {},
        "DocumentIncarnation",
    ),
    "when work may run": (("nav [href='#/policy']",), {}, "every host"),
    "what failed": (("nav [href='#/work']", "[href='#/work?state=failed']"), {}, "None."),
    "what is not delivered": (("nav [href='#/service']",), {}, "No destinations."),
    "who is active": (("nav [href='#/service']",), {}, "Active process"),
    "who did what": (("nav [href='#/history']",), {}, "m-1 is paused"),
}


FIND = "#find-name"
SUBMIT = "dialog [type=submit]"
#: Task -> presses as in `TASKS`; a press of the search field enters its third member and Enter.
NIGHT: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "what is wrong": ((), {}, "Host h5 has failed, 1 VM down"),
    "since yesterday": ((), {}, "In the last 24 hours: 1 host failed"),
    "a failed host and its VMs": (("#trouble a",), {}, "gone-0"),
    "history of a host": ((f"{FIND}=h5",), {}, "host.failed"),
    "a VM by a part of its name": ((f"{FIND}=web-1",), {}, "What the VM reads"),
    "groups of an owner": ((f"{FIND}=sho",), {}, "1 of 3"),
    "what was late last month": (
        ("nav [href='#/history']", "main [href='#/report']", "[href*='month=2026-12']"),
        {},
        "No events ended.",
    ),
    "start": (
        (
            "nav [href='#/maintenances']",
            FIRST.replace("m-1", "m-2"),
            "[data-act=start_maintenance]",
            SUBMIT,
        ),
        {},
        "Start m-2: done.",
    ),
    "approve for an owner": (
        (f"{FIND}=op-3", "main [data-act=approve_operation]", SUBMIT),
        {},
        "Approve op-3: done.",
    ),
    "cancel": (
        (FIRST.replace("m-1", "m-2"), "main [data-act=cancel_maintenance]", SUBMIT),
        {},
        "Cancel m-2: done.",
    ),
    "new maintenance": (
        ("nav [href='#/maintenances']", "[data-act=create_maintenance]", SUBMIT),
        {"cause": "host-reboot", "hosts": "h3, h4", "duration": "5m"},
        "Draft. Nothing is announced",
    ),
    "request work": (
        ("[data-act=request_work]", SUBMIT),
        {"cause": "host-reboot", "targets": "h3"},
        "Request work: done.",
    ),
    "report a failure": (
        (f"{FIND}=h6", ".menu > summary", "[data-act=fail_host]", SUBMIT),
        {},
        "Report failure of h6: done.",
    ),
    "mark repaired": (
        (f"{FIND}=h5", "[data-act=repair_host]", SUBMIT),
        {},
        "Mark h5 healthy: done.",
    ),
    "a token": (
        ("nav [href='#/access']", "[data-act=create_token]", SUBMIT),
        {"principal": "kim", "role": "viewer"},
        "Store it now",
    ),
}


#: How a task is done: by what, at which width, in which colours.
Hand: TypeAlias = tuple[str, int, str]
HANDS: list[Hand] = [("mouse", 1280, "light"), ("keyboard", 1280, "dark"), ("touch", 390, "dark")]
#: The hands take turns; each hand does every task in `make nightly`.
TURNS = pytest.mark.parametrize(
    "hands",
    [
        pytest.param(HANDS, id="turns"),
        *(pytest.param([each], id=each[0], marks=pytest.mark.nightly) for each in HANDS),
    ],
)


def show_to(page: Browser, hand: Hand, url: str) -> str:
    """Open the start page in the size and colours of a hand, and return by what it presses."""
    by, width, theme = hand
    page.resize(width, 800, phone=width == 390)
    show(page, f"{url}/#/")
    page.run(f"document.documentElement.dataset.theme = {theme!r}")
    return by


@TURNS
def test_twelve_tasks_take_four_clicks(page: Browser, service: Live, hands: list[Hand]) -> None:
    """What operators ask at three in the morning is at most four clicks from the start page."""
    service.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    for given, (task, (presses, fields, expected)) in zip(
        cycle(hands), TASKS.items(), strict=False
    ):
        assert len(presses) <= 4, task
        hand = show_to(page, given, service.url)
        for selector in presses:
            if selector.startswith("dialog"):
                for name, text in fields.items():
                    fill(page, hand, f"#field-{name}", text)
            press(page, hand, selector)
        page.see(expected)


@TURNS
def test_night_tasks_take_four_clicks(page: Browser, service: Live, hands: list[Hand]) -> None:
    """What else a night brings is at most four presses away."""
    service.fleet(groups={"web": {"kind": "scale-set", "owner": "shop"}})
    service.post("/v1/hosts/h5/fail")
    form = {"cause": "host-reboot", "hosts": ["h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    for given, (task, (presses, fields, expected)) in zip(
        cycle(hands), NIGHT.items(), strict=False
    ):
        assert len(presses) <= 4, task
        hand = show_to(page, given, service.url)
        for step in presses:
            selector, _, text = step.partition("=") if step.startswith(FIND) else (step, "", "")
            if text:
                fill(page, hand, selector, text)
                if text == "sho":  # not a whole name: the first suggestion
                    page.until("document.querySelector('[role=option]')")
                    page.key("ArrowDown")
                page.key("Enter")
                continue
            if selector == SUBMIT:
                for name, value in fields.items():
                    if name in {"cause", "role"}:
                        page.until(f"document.querySelector('#field-{name}')")
                        page.run(f"document.querySelector('#field-{name}').value = {value!r}")
                    else:
                        fill(page, hand, f"#field-{name}", value)
            press(page, hand, selector)
        page.see(expected)
        service.settle()
    # A name that is looked for may be of another kind.
    page.problems[:] = [each for each in page.problems if "404" not in each]


def test_other_actions_are_in_a_menu(page: Browser, service: Live) -> None:
    """One main action is a button; the menu has others that apply, and survives a redraw."""
    show(page, f"{service.url}/#/hosts/h1")
    page.until("document.querySelector('.menu')")
    assert not page.run("document.querySelector('[data-act=repair_host], [data-act=remove_host]')")
    press(page, "keyboard", ".menu > summary")
    page.until("document.querySelector('.menu').open")
    assert not AXE.exists() or axe_findings(page) == []
    service.post("/v1/hosts/h1/reboot")
    page.see("op-1")
    assert page.run("document.querySelector('.menu').open")
    page.key("Escape")
    page.until("document.activeElement.matches('.menu:not([open]) > summary')")
    service.post("/v1/hosts/h1/fail")
    page.until("document.querySelector('.head > .buttons > [data-act=repair_host]')")
    assert not page.run("document.querySelector('[data-act=reboot_host]')")


def test_hosts_to_postpone_are_chosen_by_rack(page: Browser, service: Live) -> None:
    """Only hosts of the maintenance that wait are offered."""
    for name in ("h1", "h2", "h3"):
        form = {"zone": "1", "labels": {"rack": "r7" if name == "h3" else "r8"}}
        service.call("PUT", f"/v1/hosts/{name}", form)
    service.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    show(page, f"{service.url}/#/maintenances/m-1")
    press(page, "mouse", "main [data-act=postpone_maintenance]")
    labels = page.until("document.querySelector('dialog .ticks')?.innerText")
    assert labels.strip() == "Zone 1: r8, 2 hosts"
    press(page, "mouse", "dialog .ticks input")
    page.until("document.querySelector('#field-hosts').value === 'h1, h2'")
    fill(page, "mouse", "#field-until", "+3h")
    press(page, "mouse", SUBMIT)
    page.see("Postpone hosts of m-1: done.")
    assert len(service.get("/v1/maintenances/m-1")["maintenance"]["postponed"]) == 2
