"""Every view of the page, in a real browser: what is offered, its width, and axe-core's rules."""

from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from tests.api.live import SETTINGS, Live
from tests.page.browser import PROGRAM, Browser
from tests.page.test_page import (
    AXE,
    _announce_for_two_owners,
    axe_findings,
    browser,
    fill,
    page,
    press,
    service,
    show,
)

__all__ = ["browser", "page", "service"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; Debian's package has it"),
]
VIEWS = (
    "#/",
    "#/work",
    "#/maintenances",
    "#/policy",
    "#/service",
    "#/access",
    "#/vms",
    "#/history",
    "#/report?only=all",
    "#/hosts/h1",
    "#/vms/web-0",
)


def test_viewer_is_offered_no_action(page: Browser) -> None:
    """Whoever may only read sees every view, and no button that would be refused."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        _announce_for_two_owners(live)
        page.open("about:blank")
        page.open(f"{live.url}/")
        fill(page, "mouse", "#token", live.add_token("eve", Role.VIEWER))
        page.key("Enter")
        page.see("eve · viewer")
        for view in (*VIEWS, "#/operations/op-2", "#/maintenances/m-1", "#/groups/web"):
            show(page, f"{live.url}/{view}")
            acts = (
                "[...document.querySelectorAll('main [data-act]')].map((each) => each.dataset.act)"
            )
            assert set(page.run(acts)) <= {"remind"}, view
        page.problems.clear()  # the browser notes the answer of 401
        page.open("about:blank")


def test_page_fits_a_phone_and_asks_nobody_else(page: Browser, service: Live) -> None:
    """Nothing is scrolled sideways or cut off, and all is asked of the service of the page."""
    page.resize(390, 844, phone=True)
    service.post("/v1/hosts/h1/reboot")
    service.call("PUT", "/v1/policy", {"postponing": "PT30H"})
    form = {"cause": "host-reboot", "hosts": ["h2", "h3"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-2/postpone", hosts=["h3"], until="+1d")
    too_wide = "[...document.querySelectorAll('html, nav, .scroll')].filter((each) =>"
    too_wide += " each.scrollWidth > each.clientWidth).map((each) => each.outerHTML.slice(0, 80))"
    for view in (
        *VIEWS,
        "#/hosts",
        "#/vms",
        "#/groups",
        "#/operations/op-1",
        "#/maintenances/m-2",
        "#/hosts/h1",
    ):
        show(page, f"{service.url}/{view}")
        page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        page.until(
            "![...document.querySelectorAll('details:not(.menu)')]"
            ".some((each) => !each.querySelector('td'))"
        )
        assert page.run(too_wide) == [], view
    assert {each for each in page.asked if not each.startswith((service.url, "about:"))} == set()


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is missing; tools/web/check install fetches it"
)
def test_axe_finds_nothing(page: Browser, service: Live) -> None:
    """What people with a screen reader or weak eyes would stumble over is not there."""
    form = {"cause": "host-reboot", "hosts": ["h1", "h2", "h5"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    service.post("/v1/hosts/h4/fail")
    for view in ("#/maintenances/m-1", "#/operations/op-2", *VIEWS):
        show(page, f"{service.url}/{view}")
        assert_accessible(page, view)
    for view, act in (("#/maintenances/m-1", "remind"), ("#/hosts/h2", "fail_host")):
        show(page, f"{service.url}/{view}")
        press(page, "mouse", f"[data-act={act}]")
        page.until("document.querySelector('dialog[open]')")
        assert_accessible(page, act)
        page.key("Escape")


def assert_accessible(page: Browser, view: str) -> None:
    """Check a view by all rules of axe-core in light colours, and the contrast of dark ones."""
    for theme, rule in (("light", ""), ("dark", "color-contrast")):
        page.run(f"document.documentElement.dataset.theme = {theme!r}")
        assert axe_findings(page, rule) == [], (view, theme)
