"""The page in a real browser: each action by mouse or keyboard, against a real service.

What the operator API answers is tested beside it; here is what people see and press.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import OidcSettings, OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import Grant
from forewarn_server.cli.application import root
from tests.api.issuer import CLIENT, Issuer
from tests.api.live import SETTINGS, TOKEN, Live
from tests.page.browser import PROGRAM, Browser
from tests.waiting import LIMIT_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; Debian's package has it"),
]
CTRL_K = {"key": "k", "code": "KeyK", "windowsVirtualKeyCode": 75, "modifiers": 2}
AXE = Path(__file__).parents[2] / ".build/web/node_modules/axe-core/axe.min.js"
FLEET: dict[str, dict[str, dict[str, object]]] = {
    "hosts": {f"h{n}": {"fault_domain": n, "zone": "1"} for n in range(1, 7)},
    "groups": {"web": {"kind": "scale-set"}, "db": {}, "images": {"reimage_notice": True}},
    "vms": {
        "web-0": {"host": "h1", "group": "web", "spot": True},
        "web-1": {"host": "h2", "group": "web"},
        "db-0": {"host": "h1", "group": "db"},
        "gone-0": {"host": "h5", "group": "images"},
        "gone-1": {"host": "h6", "group": "db", "spot": True},
    },
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests: it takes a second to start."""
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    """The browser, which must have had nothing to complain of in the end."""
    browser.open("about:blank")  # an earlier try of a test may have left its page open
    browser.run("1")
    browser.problems.clear()
    browser.asked.clear()
    browser.resize(1360, 850)
    yield browser
    assert browser.problems == []


@pytest.fixture
def service(page: Browser) -> Iterator[Live]:
    """A service whose groups are enabled; the page leaves it before it stops."""
    live = Live()
    live.fleet(**FLEET)
    live.enable("web-0", "db-0")
    yield live
    page.open("about:blank")
    live.stop()


@contextmanager
def emulating() -> Iterator[str]:
    """Yield the address of an emulator's page."""
    program = str(Path(sys.executable).with_name("forewarn"))
    command = [program, "--json", "emulate", "--listen", "127.0.0.1:0"]
    command += ["--operator-listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["operator"]
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def show(page: Browser, url: str) -> None:
    """Open a view from the beginning."""
    page.open("about:blank")
    page.open(url)
    page.until("document.querySelector('h1') && document.querySelector('.connection.live')")


def press(page: Browser, hand: str, selector: str) -> None:
    """Press a button by mouse or finger, or find it with Tab and press Enter; also in a menu."""
    page.until(f"document.querySelector({json.dumps(selector)})", f"there is {selector}")
    closed = f"document.querySelector({json.dumps(selector)})?.closest('.menu:not([open]) > div')"
    of_menu = f".menu:has({selector.removeprefix('main ')}) > summary"
    for each in (of_menu, selector) if page.run(f"Boolean({closed})") else (selector,):
        if hand == "mouse":
            page.click(each)
        elif hand == "touch":
            page.tap(each)
        else:
            page.tab_to(each)
            page.key("Enter")


def fill(page: Browser, hand: str, selector: str, text: str) -> None:
    """Put a text in place of what a field holds."""
    if hand == "mouse":
        page.focus(selector, page.click)
    elif hand == "touch":
        page.focus(selector, page.tap)
    else:
        page.tab_to(selector)
    page.run("document.activeElement.select()")
    page.type(text)
    has_it = f"document.querySelector({json.dumps(selector)}).value === {json.dumps(text)}"
    page.until(has_it, f"{text!r} is in {selector}")


def axe_findings(page: Browser, rule: str = "") -> list[tuple[str, str]]:
    """Return each rule that axe-core finds broken on the page, and where; only of one if given."""
    page.run(AXE.read_text("utf-8"))
    options = json.dumps({"runOnly": [rule]} if rule else {})
    found = page.run(f"axe.run({options}).then((reply) => reply.violations)")
    return [(each["id"], each["nodes"][0]["html"]) for each in found]


#: View, what is pressed, fields, and what history must then tell of.
STORY: tuple[tuple[str, str, dict[str, str], str], ...] = (
    ("#/hosts/h1", "update_host", {"duration": "9s"}, "operation.announced"),
    ("#/operations/op-1", "approve_operation", {}, "operation.started"),
    ("#/operations/op-1", "retry_operation", {}, "operation.retried"),
    ("#/operations/op-1", "complete_operation", {"reason": "seen"}, "operation.succeeded"),
    ("#/hosts/h2", "reboot_host", {"not_before": "+1h"}, "operation.announced"),
    ("#/operations/op-2", "cancel_operation", {"reason": "another day"}, "operation.cancelled"),
    ("#/hosts/h2", "migrate_host", {}, "operation.announced"),
    ("#/operations/op-3", "approve_operation", {}, "operation.started"),
    ("#/operations/op-3", "complete_operation", {}, "operation.succeeded"),
    ("#/hosts/h3", "degrade_host", {}, "operation.planned"),
    ("#/hosts/h4", "fail_host", {}, "host.failed"),
    ("#/hosts/h4", "repair_host", {}, "host.healthy"),
    ("#/vms/web-0", "reboot_vm", {}, "operation.announced"),
    ("#/vms/db-0", "redeploy_vm", {}, "operation.announced"),
    ("#/vms/gone-0", "reimage_vm", {}, "operation.planned"),
    ("#/vms/web-0", "evict_vm", {}, "operation.planned"),
    ("#/vms/gone-1", "delete_vm", {}, "operation.planned"),
    ("#/", "request_work", {"cause": "host-reboot", "targets": "h5, h6"}, "operation.planned"),
    ("#/", "put_host", {"name": "h7", "zone": "2"}, "host.added"),
    ("#/", "put_group", {"name": "cache", "owner": "shop"}, "group.added"),
    ("#/", "put_vm", {"name": "cache-0", "host": "h7", "group": "cache"}, "vm.added"),
    ("#/hosts/h7", "put_host", {"zone": "3"}, "host.changed"),
    ("#/groups/cache", "put_group", {"owner": "bank"}, "group.changed"),
    ("#/vms/cache-0", "put_vm", {"size": "Standard_D2s_v5"}, "vm.changed"),
    ("#/vms/cache-0", "remove_vm", {}, "vm.removed"),
    ("#/groups/cache", "remove_group", {}, "group.removed"),
    ("#/hosts/h7", "remove_host", {}, "host.removed"),
)


WINDOWS = {"windows": {"nights": {"from": "00:00", "to": "23:00"}}}


def test_every_action_is_done(page: Browser, service: Live) -> None:
    """Everything the command line does to hosts, VMs and operations is done from the page.

    Each dialog gives the command that does the same.
    """
    show(page, f"{service.url}/")
    seen = 0
    for view, action, fields, expected in STORY:
        page.run(f"location.hash = {view + '/'!r}; location.hash = {view!r}")
        press(page, "keyboard", f"main [data-act={action}]")
        for name, text in fields.items():
            if name == "cause":
                page.until("document.querySelector('#field-cause')")
                page.run(f"document.querySelector('#field-cause').value = {text!r}")
            else:
                fill(page, "keyboard", f"#field-{name}", text)
        page.run("document.querySelector('[data-act=copy_command]').click()")
        line = page.until("document.querySelector('.command')?.textContent")
        program, *words = shlex.split(line)
        if program == "forewarn":
            root(words[0]).parse_args(words, exit_on_error=False, print_error=False)
        else:  # a changed group keeps members that have no option
            assert (program, view) == ("curl", "#/groups/cache")
        press(page, "keyboard", "dialog [type=submit]")
        page.until("!document.querySelector('dialog')", f"{action} in {view} is done")
        service.settle()
        entries = service.get(f"/v1/history?after={seen}&limit=500")["entries"]
        assert expected in {each["action"] for each in entries}, (action, entries[-8:])
        seen = entries[-1]["sequence"]
    # What was removed may be asked for once more, before the page has heard of it.
    page.problems[:] = [each for each in page.problems if "404" not in each]


def test_refusal_says_why_and_what_to_do(page: Browser, service: Live) -> None:
    """What is refused stays open, with the reason and the advice; Escape gives it up."""
    show(page, f"{service.url}/#/groups/web")
    press(page, "keyboard", "[data-act=remove_group]")
    press(page, "keyboard", "dialog [type=submit]")
    page.until("document.querySelector('.refusal').textContent.includes('web')")
    assert page.run("document.querySelectorAll('.refusal p').length") == 2
    page.key("Escape")
    page.until("!document.querySelector('dialog')")
    assert page.run("document.activeElement.dataset.act") == "remove_group"
    page.problems.clear()  # the browser notes each answer of 4xx


def test_maintenance_is_led_from_its_plan_to_its_end(page: Browser, service: Live) -> None:
    """Its waves are seen before it is described, and from then on; it is started and halted."""
    show(page, f"{service.url}/#/maintenances")
    press(page, "keyboard", "[data-act=create_maintenance]")
    page.until("document.querySelector('#field-cause')")
    page.run("document.querySelector('#field-cause').value = 'host-reboot'")
    fill(page, "keyboard", "#field-hosts", "h1, h2")
    fill(page, "keyboard", "#field-duration", "5m")
    page.see("2 waves for 2 hosts")
    press(page, "keyboard", "dialog [type=submit]")
    page.see("wave 2 waits for wave 1")
    page.until("document.querySelectorAll('.wave').length === 2")
    for action, state in (
        ("start_maintenance", "running"),
        ("pause_maintenance", "paused"),
        ("resume_maintenance", "running"),
        ("cancel_maintenance", "cancelled"),
    ):
        press(page, "keyboard", f"main [data-act={action}]")
        press(page, "keyboard", "dialog [type=submit]")
        page.until(f"document.querySelector('.headline .chip').textContent === {state!r}")


def test_maintenance_says_what_it_waits_for(page: Browser, service: Live) -> None:
    """Missing approvals and a pause are named; a pause counts nothing down; all times are UTC."""
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    show(page, f"{service.url}/#/maintenances/m-1")
    page.see("has not approved event")
    page.see("1 announced")
    times = page.run("[...document.querySelectorAll('time')].map((each) => each.textContent)")
    assert times
    assert all(each.endswith(" UTC") for each in times)
    service.post("/v1/maintenances/m-1/pause", reason="a game is on")
    page.see("resume m-1, which is paused (a game is on)")
    assert page.run("document.querySelectorAll('main .ticking').length") == 0
    assert "No blockers" not in page.run("document.querySelector('main').textContent")


def test_plan_that_moves_vms_is_a_picture(page: Browser, service: Live) -> None:
    """Each host of a wave has bars of its memory before, while VMs move, and after. F-3."""
    hosts = {name: {"memory_mib": 8192} for name in ("h1", "h2", "h3")}
    service.fleet(hosts=hosts, vms={"big": {"host": "h1", "memory_mib": 6144}})
    for name in ("web-0", "db-0"):
        vm = service.get(f"/v1/vms/{name}")
        service.fleet(vms={name: {"host": vm["host"], "group": vm["group"], "memory_mib": 1024}})
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": "PT5M", "move_vms": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    show(page, f"{service.url}/#/maintenances/m-1")
    page.see("leave their hosts first")
    page.until("document.querySelectorAll('meter').length >= 6")
    page.see("of 8,192 MiB")


def test_outbox_has_the_age_of_the_last_backup(page: Browser, service: Live) -> None:
    """None is known before the first one. Source: U-1."""
    show(page, f"{service.url}/#/outbox")
    page.see("No known backup. forewarn store backup creates a backup.")


def test_service_is_shown_with_its_parts(page: Browser, service: Live) -> None:
    """State, last commit, nodes and versions; every figure is the one of the API."""
    show(page, f"{service.url}/#/service")
    for text in ("Active process", "No metadata nodes", "live operations", "API versions for VMs"):
        page.see(text)
    commit = service.get("/v1/leader")["generation"]
    assert f"Last commit\n{commit}\n" in page.run("document.querySelector('.facts').innerText")


def test_data_says_its_age_when_it_is_old(page: Browser, service: Live) -> None:
    """The bar says Live while the service is heard, and how old the data is once it is not."""
    show(page, f"{service.url}/#/policy")
    connection = "document.querySelector('#connection')"
    page.until(f"{connection}.innerText === 'Live'")
    page.run("""(() => {
        const real = performance.now.bind(performance);
        performance.now = () => 4 * real(); // messages come every two seconds
    })()""")
    page.until(f"/^\\d+ s old$/.test({connection}.innerText)")


def test_waves_burn_down(page: Browser, service: Live) -> None:
    """The hosts that are left are a line to now, and a dashed one to the planned end."""
    form = {"cause": "host-reboot", "hosts": ["h3", "h4", "h1", "h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    wait_until(lambda: service.get("/v1/maintenances/m-1")["waves"])
    show(page, f"{service.url}/#/maintenances/m-1")
    page.see("Hosts left: 4 of 4 now; by the plan 0 at its end.")
    page.until("document.querySelector('.columns-chart .dashed')")


def test_maintenance_says_who_has_not_approved(page: Browser, service: Live) -> None:
    """Each group is listed with its owner and its answer; those who have not can be reminded."""
    service.fleet(groups={"web": {"owner": "shop"}, "db": {"owner": "bank"}})
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    wait_until(lambda: service.document("db-0")["Events"], what="the event of the first wave")
    event = service.document("db-0")["Events"][0]["EventId"]
    service.post(f"/v1/operations/{event}/approve")
    show(page, f"{service.url}/#/maintenances/m-1")
    page.see("web")
    owners = page.run("[...document.querySelectorAll('.owner h3')].map((each) => each.innerText)")
    assert owners == ["shop 0 of 1 approved", "bank 1 of 1 approved"]
    rows = page.run("[...document.querySelectorAll('.owner tr')].map((each) => each.innerText)")
    assert any(each.split()[:2] == ["web", "waiting"] for each in rows), rows
    assert any(each.split()[:2] == ["db", "approved"] for each in rows), rows
    press(page, "mouse", ".owner [data-act=postpone_maintenance]")
    page.until("document.querySelector('[data-ticks=hosts] label').innerText === 'h1, announced'")
    assert page.run("document.querySelector('#field-by').value") == "shop"
    page.key("Escape")
    press(page, "mouse", "[data-act=remind]")
    assert "web-0" in page.run("document.querySelector('#reminder-0').value")
    page.key("Escape")
    show(page, f"{service.url}/#/maintenances")
    page.see("has not approved event")
    service.post("/v1/vms/gone-1/reboot")
    show(page, f"{service.url}/#/work?state=announced")
    press(page, "keyboard", "[data-act=remind]")
    page.see("To bank")
    labels = page.run(
        "[...document.querySelectorAll('dialog label')].map((each) => each.innerText)"
    )
    assert labels == ["To bank", "To shop"]
    page.key("Escape")


def test_hosts_are_chosen_by_rack_and_on_the_map(page: Browser, service: Live) -> None:
    """A tick adds a rack, a click on the map adds or removes a host, and the plan follows."""
    show(page, f"{service.url}/#/maintenances")
    press(page, "mouse", "[data-act=create_maintenance]")
    page.until("document.querySelector('#field-cause')")
    page.run("document.querySelector('#field-cause').value = 'host-reboot'")
    fill(page, "mouse", "#field-duration", "5m")
    press(page, "mouse", ".picker summary")
    press(page, "mouse", "[data-rack='Zone 1: fault domain 2']")
    page.until("document.querySelector('#field-hosts').value === 'h2'")
    page.see("1 wave for 1 host")
    page.tab_to("dialog .map")
    page.key("Home")
    page.key("Enter")
    page.until("document.querySelector('#field-hosts').value === 'h2, h1'")
    page.see("2 waves for 2 hosts")
    page.key("Enter")
    page.until("document.querySelector('#field-hosts').value === 'h2'")
    assert not AXE.exists() or axe_findings(page) == []
    page.key("Escape")


def test_owner_is_postponed_by_ticks(page: Browser, service: Live) -> None:
    """Announced and later hosts of the owner are ticked; only the ticked ones are postponed."""
    service.fleet(groups={"web": {"owner": "shop"}, "db": {"owner": "bank"}})
    service.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    form = {"cause": "host-reboot", "hosts": ["h1", "h2", "h3"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    wait_until(lambda: service.document("web-0")["Events"], what="the event of the first wave")
    show(page, f"{service.url}/#/maintenances/m-1")
    press(page, "mouse", "[aria-label='Postpone m-1 for shop']")
    labels = "[...document.querySelectorAll('[data-ticks] label')].map((each) => each.innerText)"
    assert page.until(f"({labels}).length && {labels}") == ["h1, announced", "h2"]
    press(page, "mouse", "[data-ticks] [value=h1]")
    press(page, "mouse", "[aria-label='Until: +4h']")
    press(page, "mouse", "dialog [type=submit]")
    page.see("Postpone hosts of m-1 for shop: done.")
    postponed = service.get("/v1/maintenances/m-1")["maintenance"]["postponed"]
    assert [(each["host"], each["by"]) for each in postponed] == [("h2", "shop")]


def test_preview_names_the_vms_that_move_and_return(page: Browser, service: Live) -> None:
    """Each VM is named with its destination, and so is its way back. Source: F-3."""
    hosts = {name: {"memory_mib": 8192} for name in ("h1", "h2", "h3")}
    vm = {"host": "h1", "group": "web", "memory_mib": 1024}
    service.fleet(hosts=hosts, vms={"web-0": vm, "db-0": {**vm, "group": "db"}})
    show(page, f"{service.url}/#/maintenances")
    press(page, "mouse", "[data-act=create_maintenance]")
    page.until("document.querySelector('#field-cause')")
    page.run("document.querySelector('#field-cause').value = 'host-reboot'")
    for name, text in {"hosts": "h1", "duration": "5m", "move_vms": "20m"}.items():
        fill(page, "mouse", f"#field-{name}", text)
    press(page, "mouse", "#field-return_vms")
    page.until("document.querySelector('.plan li')?.innerText.includes('back to')")
    text = page.run("document.querySelector('.plan li').innerText")
    assert "web-0" in text
    assert "back to h1 after the work" in text
    page.key("Escape")


def test_report_lists_what_started_late(page: Browser, service: Live) -> None:
    """The month, an owner and a selection are in the address; lateness is a duration. X-1."""
    service.post("/v1/hosts/h1/reboot")
    service.advance(3600)
    service.post("/v1/operations/op-1/complete")
    service.settle()
    service.advance(60)
    show(page, f"{service.url}/#/history")
    press(page, "mouse", "main [href='#/report']")
    page.see("44 min 59 s late")
    page.until("document.querySelector(\"[aria-current=page][href*='only=all']\")")
    page.until("document.querySelector('.bars .bar-text').innerText.includes('with notice')")
    page.run("""(() => {
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
            blob.text().then((text) => (window.saved = text));
            return make.call(URL, blob);
        };
    })()""")
    press(page, "mouse", "[data-download=csv]")
    lines = page.until("window.saved").splitlines()
    assert [lines[0].split(",")[0], len(lines)] == ['"event"', 3]
    show(page, f"{service.url}/#/report?only=failed")
    page.see("None.")
    press(page, "mouse", "[href*='month=2026-12']")
    page.see("No events ended.")


def test_plan_says_what_it_changed(page: Browser, service: Live) -> None:
    """A host whose time alone is other is not said to be in another wave. Source: F-2."""
    service.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/postpone", hosts=["h1"], until="+2h")
    show(page, f"{service.url}/#/maintenances/m-1")
    page.see("1 host at another time")
    assert "in another wave" not in page.run("document.querySelector('main').textContent")


def test_what_happens_is_shown_at_once(page: Browser, service: Live) -> None:
    """An event asked for elsewhere appears, counts down, shows its approval, and goes."""
    show(page, f"{service.url}/")
    page.see("No open work.")
    service.post("/v1/hosts/h1/reboot")
    page.see("0 of 2 approved")
    page.see("starts in 15 min 0")
    service.post("/v1/operations/op-1/approve")
    page.see("started")
    assert page.run("document.querySelector('.legend').innerText").split()[:2] == ["1", "running"]
    service.post("/v1/operations/op-1/complete")
    page.see("No open work.")


def test_refused_machine_is_shown_at_once(page: Browser, service: Live) -> None:
    """What follows a cloud is refused a VM; the page of the fleet says which and why."""
    show(page, f"{service.url}/")
    service.call("PUT", "/v1/topology", {"vms": {"odd name": {"host": "h1"}}})
    page.see("odd name")


MIDDLE_OF_H3 = """(() => {
    const box = document.querySelector(".map").getBoundingClientRect();
    const [x, y] = forewarnMap.middle(2);
    return [box.x + x, box.y + y];
})()"""


def test_done_hosts_are_framed_on_the_map(page: Browser, service: Live) -> None:
    """Hosts that a maintenance under way has done are counted below the map."""
    form = {"cause": "host-reboot", "hosts": ["h3", "h1"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    service.settle()
    works = service.get("/v1/operations?live=true")["operations"]
    quiet = next(each["id"] for each in works if each["host"] == "h3")
    show(page, f"{service.url}/")
    service.post(f"/v1/operations/{quiet}/complete")
    page.see("1 host done by maintenances under way: framed.")


def test_host_is_opened_from_the_map(page: Browser, service: Live) -> None:
    """A cell is a host: a click opens it, and so do the arrow keys and Enter."""
    cells = "document.querySelector('.map').getAttribute('aria-label').includes('6 hosts')"
    show(page, f"{service.url}/")
    page.until(cells)
    page.click_at(*page.still(MIDDLE_OF_H3))
    page.until("document.querySelector('h1').textContent.includes('Host h3')")
    show(page, f"{service.url}/")
    page.until(cells)
    page.tab_to(".map")
    page.key("Home")
    page.key("ArrowRight", times=2)
    page.until("document.querySelector('#said').textContent.startsWith('h3: quiet')")
    page.key("Enter")
    page.until("document.querySelector('h1').textContent.includes('Host h3')")


def test_map_keeps_hosts_together(page: Browser, service: Live) -> None:
    """Racks of one host each are side by side, without a gap as wide as a host."""
    show(page, f"{service.url}/")
    page.until("document.querySelector('.map').getAttribute('aria-label').includes('6 hosts')")
    first, second = (page.run(f"forewarnMap.middle({place})[0]") for place in (0, 1))
    assert second - first < 1.5 * page.run("forewarnMap.size")


def test_document_is_the_vms_own_in_every_version(page: Browser, service: Live) -> None:
    """The page shows what the VM reads, for each api-version. Source: V-1."""
    service.post("/v1/vms/web-0/reboot")
    show(page, f"{service.url}/#/vms/web-0")
    read = service.document("web-0")
    assert json.loads(page.run("document.querySelector('.document').textContent")) == read
    page.click("#api-version")
    page.run("document.querySelector('#api-version').focus()")
    page.type("2017-03-01")
    page.run("""(() => { const choose = document.querySelector("#api-version");
        choose.value = "2017-03-01"; choose.dispatchEvent(new Event("change")); })()""")
    page.until("document.querySelector('.document').textContent.includes('_web-0')")


def test_history_is_filtered(page: Browser, service: Live) -> None:
    """Filters are in the address; a name that never was is refused with its reason."""
    service.post("/v1/hosts/h1/reboot")
    show(page, f"{service.url}/#/history?host=h1&action=operation.announced")
    page.see("op-1 is announced")
    assert page.run("document.querySelectorAll('.history tbody tr').length") == 1


def test_history_is_searched_by_one_box(page: Browser, service: Live) -> None:
    """A name becomes a chip, a range is in the address, and each day has a heading."""
    service.post("/v1/hosts/h1/reboot")
    service.settle()
    service.advance(25 * 3600)
    service.post("/v1/operations/op-1/complete")
    service.post("/v1/hosts/h2/reboot")
    service.settle()
    show(page, f"{service.url}/#/history")
    headings = "[...document.querySelectorAll('.days h2')].map((each) => each.innerText)"
    page.until(f"({headings}).length === 2")
    assert page.run(headings) == ["Saturday, 2027-01-16", "Friday, 2027-01-15"]
    fill(page, "keyboard", "#history-find", "h1")
    page.key("Enter")
    page.until("document.querySelector('.chip.removable').innerText.includes('Host h1')")
    fill(page, "keyboard", "#history-find", "operation.announced")
    page.key("Enter")
    page.until(f"({headings}).length === 1 && document.querySelectorAll('.chip.removable')[1]")
    assert page.run("document.querySelector('.days tbody').rows.length") == 1
    press(page, "mouse", "[href*='range=hour']")
    page.see("Nothing happened in this time.")
    press(page, "keyboard", "[aria-label='Remove the filter Host h1']")
    page.until(f"({headings}).join() === 'Saturday, 2027-01-16'")


def test_token_is_created_and_revoked(page: Browser, service: Live) -> None:
    """Its secret is shown until it is closed; the list has its holder, and not the secret."""
    show(page, f"{service.url}/#/access")
    press(page, "keyboard", "[data-act=create_token]")
    fill(page, "keyboard", "#field-principal", "kim")
    page.run("document.querySelector('#field-role').value = 'owner'")
    press(page, "keyboard", "dialog [type=submit]")
    page.until("document.querySelector('#field-role ~ .refusal b').innerText.includes('owner')")
    fill(page, "keyboard", "#field-owner", "shop")
    press(page, "keyboard", "dialog [type=submit]")
    page.see("Token of kim")
    secret = page.run("document.querySelector('#new-token').value")
    assert secret.startswith("fw_")
    page.key("Escape")  # would lose the token
    press(page, "keyboard", "[data-act=copy_token]")
    page.see("Copied.")
    press(page, "keyboard", "dialog [type=submit]")
    page.see("POST /v1/access/tokens")
    assert secret not in page.run("document.querySelector('main').innerText")
    press(page, "keyboard", "[data-act=revoke_token]")
    press(page, "keyboard", "dialog [type=submit]")
    page.see("No tokens.")
    page.problems[:] = [each for each in page.problems if "422" not in each]


def test_owner_is_offered_what_an_owner_may_do(page: Browser) -> None:
    """Views and actions of the whole fleet are not shown to an owner."""
    with Live(
        replace(SETTINGS, operator=replace(SETTINGS.operator, open_on_loopback=False))
    ) as live:
        page.open("about:blank")
        page.open(f"{live.url}/")
        fill(page, "mouse", "#token", live.add_token("shop-ci", Role.OWNER, owner="shop"))
        page.key("Enter")
        page.until("document.querySelector('.connection.live')")
        page.see("shop-ci · owner of shop")
        assert page.run("document.querySelector('#views').innerText").split() == [
            *("Home", "Fleet", "Work", "Inventory", "History", "Availability")
        ]
        shown = "[...document.querySelectorAll('[data-act]')].map((each) => each.dataset.act)"
        page.until("document.querySelector('h1')?.innerText === 'Home'")
        assert page.run(shown) == ["open_ticket"]
        page.run("location.hash = '#/fleet'")
        page.until("document.querySelector('h1')?.innerText === 'Fleet'")
        assert page.run(shown) == []
        page.problems.clear()  # the browser notes the answer of 401
        page.open("about:blank")


def test_owner_sees_what_happens_without_a_choice(page: Browser) -> None:
    """The first view of an owner names each host, the start without a choice, and the deadline."""
    settings = replace(SETTINGS, operator=OperatorSettings())
    with Live(settings) as live:
        admin = {"Authorization": f"Bearer {TOKEN}"}
        groups = {"web": {"kind": "scale-set", "owner": "shop"}, "db": {"owner": "bank"}}
        live.call(
            "PUT", "/v1/topology", {**FLEET, "groups": {**FLEET["groups"], **groups}}, headers=admin
        )
        live.enable("web-0", "db-0")
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT5M"}
        form["reason"] = "firmware"
        live.call("POST", "/v1/maintenances", form, headers=admin)
        live.call("POST", "/v1/maintenances/m-1/declare", {}, headers=admin)
        page.open("about:blank")
        page.open(f"{live.url}/#/home")
        fill(page, "mouse", "#token", live.add_token("shop-ci", Role.OWNER, owner="shop"))
        page.key("Enter")
        page.see("Host reboot: firmware")
        rows = "[...document.querySelectorAll('main tbody tr')].map((each) => each.innerText)"
        page.until(
            f"({rows}).length === 2 && ({rows}).every((each) => each.includes('The work starts'))"
        )
        assert all("bank" not in each for each in page.run(rows))
        page.see("Choose by")
        assert not AXE.exists() or axe_findings(page) == []
        page.run("localStorage.clear()")
        page.problems.clear()  # the browser notes the answer of 401
        page.open("about:blank")


def test_reminders_say_how_many_groups_are_left_out(page: Browser, service: Live) -> None:
    """The page writes to 50 groups at a time."""
    names = [f"g{number}" for number in range(51)]
    groups = {name: {"owner": "shop"} for name in names}
    vms = {name: {"host": "h1", "group": name} for name in names}
    service.fleet(hosts={"h1": {}}, groups=groups, vms=vms)
    service.post("/v1/hosts/h1/reboot")
    service.settle()
    show(page, f"{service.url}/#/work?state=announced")
    press(page, "mouse", "[data-act=remind]")
    page.see("further group")
    page.key("Escape")


def test_second_operator_confirms(page: Browser) -> None:
    """What needs two people is asked for by one, and named on every view until another confirms."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {TOKEN}"}
        live.call("PUT", "/v1/topology", FLEET, headers=admin)
        live.call("PUT", "/v1/policy", {"confirm": ["fail-host"]}, headers=admin)
        page.open(f"{live.url}/#/hosts/h1")
        fill(page, "mouse", "#token", live.add_token("ben", Role.OPERATOR))
        page.key("Enter")
        press(page, "keyboard", "[data-act=fail_host]")
        press(page, "keyboard", "dialog [type=submit]")
        page.see("for another operator to confirm c-")
        page.key("Escape")
        page.run("location.hash = '#/confirmations'")
        page.see("Withdraw")
        assert "fail host h1" in page.run("document.querySelector('td[data-label=What]').innerText")
        press(page, "mouse", "#sign-out")
        fill(page, "mouse", "#token", TOKEN)
        page.key("Enter")
        press(page, "mouse", "#waiting")
        press(page, "keyboard", "[data-act=confirm]")
        page.until("document.querySelector('dialog[open]')")
        assert not AXE.exists() or axe_findings(page) == []
        press(page, "keyboard", "dialog [type=submit]")
        page.see("No call waits for a second operator.")
        assert live.call("GET", "/v1/hosts/h1", headers=admin).json["health"] == "failed"
        page.problems.clear()  # the browser notes each answer of 401 and 409
        page.open("about:blank")


def test_owner_signs_in_at_the_issuer_approves_and_postpones(page: Browser) -> None:
    """A person sees only what is theirs, answers for it, and is offered nothing else."""
    issuer = Issuer()
    issuer.groups = ["shop"]
    oidc = OidcSettings(issuer=issuer.url, client_id=CLIENT)
    live = Live(replace(SETTINGS, operator=OperatorSettings(), oidc=oidc))
    try:
        _announce_for_two_owners(live)
        page.open(f"{live.url}/#/operations/op-2")
        press(page, "keyboard", "#single-sign-on")
        page.see("kim · owner of shop")
        page.until("document.querySelectorAll('[data-act=approve_operation]').length === 3")
        assert page.run("location.hash + location.search") == "#/operations/op-2"
        text = page.run("document.querySelector('main').innerText")
        assert "web" in text
        assert "db" not in text
        offered = page.run(
            "[...document.querySelectorAll('main [data-act]')].map(e => e.dataset.act)"
        )
        assert set(offered) == {"approve_operation", "postpone_event"}
        press(page, "mouse", "[data-act=approve_operation]:has(+ [data-act=postpone_event])")
        press(page, "mouse", "dialog [type=submit]")
        page.until("document.querySelectorAll('[data-act=approve_operation]').length === 2")
        press(page, "mouse", "[data-act=postpone_event]")
        fill(page, "mouse", "#field-until", "+3h")
        press(page, "mouse", "dialog [type=submit]")
        page.see("The work on a host was withdrawn")
        press(page, "mouse", "#sign-out")
        page.see("Sign in to Forewarn")
        page.problems.clear()  # the browser notes each answer of 401
        page.open("about:blank")
    finally:
        live.stop()
        issuer.stop()


def _announce_for_two_owners(live: Live) -> None:
    """Announce a maintenance of a host with VMs of two owners; one is the issuer's group shop."""
    live.daemon.control.submit(Grant("group:shop", Role.OWNER, "shop"), "test").result(LIMIT_S)
    groups = {**FLEET["groups"], "web": {"owner": "shop"}, "db": {"owner": "bank"}}
    groups["cache"] = {"owner": "shop"}
    vms = {**FLEET["vms"], "cache-0": {"host": "h1", "group": "cache"}}
    operator = {"Authorization": f"Bearer {TOKEN}"}
    live.call("PUT", "/v1/topology", {**FLEET, "groups": groups, "vms": vms}, headers=operator)
    live.enable("web-0", "db-0", "cache-0")
    live.call("PUT", "/v1/policy", {"postponing": "PT6H"}, headers=operator)
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": "PT5M"}
    live.call("POST", "/v1/maintenances", form, headers=operator)
    live.call("POST", "/v1/maintenances/m-1/start", headers=operator)
    live.settle()


def test_signing_in_takes_the_operators_token(page: Browser) -> None:
    """Without a token nothing is shown; it is kept for the tab, and forgotten by signing out."""
    with Live(
        replace(SETTINGS, operator=replace(SETTINGS.operator, open_on_loopback=False))
    ) as live:
        page.open("about:blank")
        page.open(f"{live.url}/")
        fill(page, "mouse", "#token", "no-such-token-0123456789")
        press(page, "mouse", "[type=submit]")
        page.see("token is unknown")
        fill(page, "keyboard", "#token", TOKEN)
        page.key("Enter")
        page.until("document.querySelector('.connection.live')")
        assert page.run("sessionStorage.getItem('forewarn-token')") == TOKEN
        assert page.run("localStorage.getItem('forewarn-token')") is None
        press(page, "keyboard", "#sign-out")
        page.see("Sign in to Forewarn")
        assert page.run("sessionStorage.getItem('forewarn-token')") is None
        page.problems.clear()  # the browser notes each answer of 401
        page.open("about:blank")


def test_tour_of_the_emulator(page: Browser) -> None:
    """The README's tour: a scenario, its event, the clock moved ahead; a fault set and cleared."""
    with emulating() as url:
        show(page, f"{url}/")
        press(page, "keyboard", "nav [href='#/emulator']")
        press(page, "keyboard", "[data-run=host-reboot]")
        page.see("Scenario host-reboot begins.")
        press(page, "keyboard", "nav [href='#/vms']")
        page.until("document.querySelector('h1').textContent === 'VMs'")
        press(page, "keyboard", "main [href='#/vms/vm-1']")
        page.until("document.querySelector('.document')?.textContent.includes('Scheduled')")
        press(page, "keyboard", "nav [href='#/emulator']")
        press(page, "keyboard", "[data-ahead='16m']")
        press(page, "keyboard", "nav [href='#/vms']")
        page.until("document.querySelector('h1').textContent === 'VMs'")
        press(page, "keyboard", "main [href='#/vms/vm-1']")
        page.until("document.querySelector('.document')?.textContent.includes('Started')")
        press(page, "keyboard", "nav [href='#/emulator']")
        press(page, "keyboard", "[data-speed='60']")
        page.see("60 s to a second")
        press(page, "keyboard", "[data-fault='500']")
        press(page, "keyboard", "dialog [type=submit]")
        press(page, "keyboard", "[aria-label^='Take 500']")
        page.see("No faults.")
        page.open("about:blank")


def test_lost_connection_is_loud_and_stops_countdowns(page: Browser) -> None:
    """Without its service the page says since when, and counts nothing down."""
    live = Live()
    live.fleet(**FLEET)
    live.enable("web-0")
    live.post("/v1/hosts/h1/reboot")
    show(page, f"{live.url}/")
    page.until("document.querySelector('.ticking')")
    live.stop()
    page.see("Connection lost at 2027-01-15")
    script = """import("/web/api.js").then(({ now }) => [now(), new Promise((done) =>
        requestAnimationFrame(() => done(now())))]).then((each) => Promise.all(each))"""
    first, second = page.run(script)
    assert first == second
    page.open("about:blank")
    page.problems.clear()  # the browser notes each request that failed


def test_one_switch_changes_every_time(page: Browser, service: Live) -> None:
    """The clock is a button: after it, all times have the offset of this machine's zone."""
    page.send("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    show(page, f"{service.url}/#/history")
    texts = "[...document.querySelectorAll('#clock, time')].map((each) => each.textContent)"
    for zone in (" UTC+05:30", " UTC"):
        press(page, "keyboard", "#clock")
        page.until(f"document.querySelector('time').textContent.endsWith({zone!r})")
        assert all(each.endswith(zone) for each in page.run(texts))
    page.send("Emulation.setTimezoneOverride", timezoneId="")


def test_silent_groups_are_named_before_work(page: Browser, service: Live) -> None:
    """Groups that do not poll are listed, and named in the dialog before anything is done."""
    show(page, f"{service.url}/#/hosts/h5")
    press(page, "keyboard", "[data-act=reboot_host]")
    page.until("document.querySelector('dialog .warning').textContent.includes('images')")
    page.key("Escape")
    press(page, "keyboard", "nav [href='#/vms']")
    press(page, "keyboard", "[href='#/groups?enabled=false']")
    page.until("document.querySelector('h1').textContent === 'Groups that do not poll'")
    page.until("document.querySelector('tbody tr')")
    names = page.run("[...document.querySelectorAll('tbody tr')].map((each) => each.innerText)")
    assert [each.split()[0] for each in names] == ["images"]


def test_names_are_found_as_they_are_typed(page: Browser, service: Live) -> None:
    """Hosts, VMs, groups and ids are offered below the field; a click or Enter opens one."""
    show(page, f"{service.url}/")
    fill(page, "keyboard", "#find-name", "we")
    page.until("document.querySelectorAll('[role=option]').length === 3")
    page.key("ArrowDown", times=2)
    page.key("Enter")
    page.until("document.querySelector('h1').textContent.includes('VM web-0')")


def test_palette_goes_everywhere(page: Browser, service: Live) -> None:
    """Ctrl+K offers the actions in sight, the views, and records by name."""
    show(page, f"{service.url}/#/hosts/h1")
    for text, seen in (
        ("reboot", "Reboot h1"),
        ("policy", "Policy in force"),
        ("web-0", "VM web-0"),
    ):
        page.until("document.querySelector('main [data-act], main pre')")
        page.send("Input.dispatchKeyEvent", **{**CTRL_K, "type": "rawKeyDown"})
        page.send("Input.dispatchKeyEvent", **{**CTRL_K, "type": "keyUp"})
        page.until("document.activeElement.id === 'palette-text'")
        page.type(text)
        page.until(
            "document.querySelector('#palette-list [aria-selected=true]')"
            f".innerText.toLowerCase().includes({text!r})"
        )
        assert not AXE.exists() or axe_findings(page) == []
        page.key("Enter")
        page.see(seen)
        page.run("document.querySelector('dialog')?.close()")


def test_command_of_a_dialog_can_be_run(page: Browser, service: Live) -> None:
    """It quotes what a shell would split, and is a request where no command makes the call."""
    show(page, f"{service.url}/#/hosts/h1")
    press(page, "keyboard", "[data-act=reboot_host]")
    press(page, "keyboard", "[aria-label='Not before: +1h']")
    press(page, "keyboard", "dialog summary")
    fill(page, "keyboard", "#field-description", "it's a $test")
    press(page, "keyboard", "[data-act=copy_command]")
    line = page.until("document.querySelector('.command')?.textContent")
    words = ["forewarn", "host", "reboot", "h1", "--not-before", "+1h"]
    assert shlex.split(line) == [*words, "--description", "it's a $test"]
    page.key("Escape")
    service.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    form = {"cause": "host-reboot", "hosts": ["h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    service.settle()
    show(page, f"{service.url}/#/operations/op-2")
    press(page, "mouse", "[data-act=postpone_event]")
    fill(page, "mouse", "#field-until", "+3h")
    press(page, "mouse", "[data-act=copy_command]")
    line = page.until("document.querySelector('.command')?.textContent")
    assert line.startswith('curl -sf -X POST "$FOREWARN_SERVER/v1/events/')
    assert json.loads(shlex.split(line)[-1]) == {"until": "+3h"}
    page.key("Escape")


def test_refusal_is_beside_its_field(page: Browser, service: Live) -> None:
    """What cannot be is said at the field it is about, which has the focus."""
    show(page, f"{service.url}/#/hosts/h1")
    press(page, "keyboard", "[data-act=reboot_host]")
    fill(page, "keyboard", "#field-duration", "soon")
    page.key("Enter")
    page.until("document.querySelector('.field .refusal').innerText.includes('duration')")
    assert page.run("document.activeElement.id") == "field-duration"
    page.key("Escape")
    page.problems.clear()  # the browser notes each answer of 4xx


def test_safe_button_is_the_bright_one(page: Browser, service: Live) -> None:
    """Before something is removed the dialog says what that means; "Not now" stands out."""
    show(page, f"{service.url}/#/vms/web-0")
    press(page, "mouse", "[data-act=remove_vm]")
    page.see("but no longer gets notice")
    assert page.run("document.querySelector('dialog .first').textContent") == "Not now"
    assert page.run("document.querySelector('dialog [type=submit]').textContent") == "Remove web-0"
    page.key("Escape")


def test_policy_is_changed_and_its_windows_are_shown(page: Browser, service: Live) -> None:
    """What would change is seen first; then the open times of the new windows are listed."""
    show(page, f"{service.url}/#/policy")
    page.see("always")
    press(page, "keyboard", "main [data-act=apply_policy]")
    text = '[windows.night]\ntime_zone = "Europe/Berlin"\nfrom = "22:00"\nto = "04:00"'
    fill(page, "keyboard", "#policy-text", text)
    press(page, "keyboard", "[data-act=preview]")
    page.see("This would change: windows.")
    press(page, "keyboard", "dialog [type=submit]")
    page.until("document.querySelector('tbody tr')?.innerText.startsWith('night')")
    assert "night" in service.get("/v1/policy")["windows"]


def test_tour_needs_no_scrolling(page: Browser) -> None:
    """At 1280 x 800 everything is in sight; what runs is first, and notes do not pile up."""
    page.resize(1280, 800)
    with emulating() as url:
        show(page, f"{url}/#/emulator")
        page.until("document.querySelectorAll('.scenario').length > 10")
        seen = "[...document.querySelectorAll('[data-run], [data-ahead], [data-fault]')].every("
        assert page.run(seen + "(each) => each.getBoundingClientRect().bottom < innerHeight)")
        assert page.run("document.documentElement.scrollWidth") == 1280
        assert page.run("document.querySelector('#find').clientWidth") > 90
        for name in ("user-redeploy", "host-reboot"):
            press(page, "mouse", f"[data-run={name}]")
            page.see(f"Scenario {name} begins.")
            page.until(f"!document.querySelector('[data-run={name}]')")  # it has a Stop instead
        page.move_to(1, 1)
        page.until("document.querySelector('.scenario:nth-child(2)').innerText.includes('Stop')")
        assert page.run("document.querySelectorAll('.note').length") == 1
        page.open("about:blank")


def test_host_has_its_labels(page: Browser, service: Live) -> None:
    """Labels select hosts of a maintenance and of windows, so the host's view shows them."""
    service.fleet(hosts={"h1": {"zone": "1", "labels": {"rack": "r7", "tier": "gold"}}})
    show(page, f"{service.url}/#/hosts/h1")
    page.see("rack=r7, tier=gold")


def test_timeline_shows_what_is_planned(page: Browser, service: Live) -> None:
    """Lanes stand by maintenance and wave; time can be widened; work leads to its maintenance."""
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT5M"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    show(page, f"{service.url}/#/work")
    page.until("document.querySelector('.piece.planned')")
    names = "[...document.querySelectorAll('.lane-name')].map((each) => each.textContent)"
    assert page.run(names)[:5] == ["UTC", "m-1 Host reboot", "Wave 1", "h1", "Wave 2"]
    assert "not approved: 0 of 2" in page.run("document.querySelector('.timeline').textContent")
    press(page, "keyboard", "[data-zoom='1 week']")
    page.until("document.querySelector('.tick').textContent.startsWith('01-')")
    press(page, "keyboard", "td a[href='#/operations/op-2']")
    press(page, "keyboard", "dd a[href='#/maintenances/m-1']")
    press(page, "keyboard", "details summary")
    page.until("document.querySelector(\"details a[href='#/operations/op-2']\")")


TROUBLE = "document.querySelector('#trouble')"


def test_waiting_is_quiet_until_work_is_near(page: Browser, service: Live) -> None:
    """A number beside Work counts unapproved events; from two minutes before, a bar names them."""
    service.post("/v1/hosts/h1/reboot")
    show(page, f"{service.url}/#/policy")
    page.until("document.querySelector('#unapproved').textContent === '2'")
    assert page.run("document.querySelector('#unapproved').title") == "2 events not approved"
    assert page.run(f"{TROUBLE}.hidden")
    service.advance(14 * 60)
    page.see("op-1 of h1 is not approved and starts in ")
    assert page.run(f"{TROUBLE}.classList.contains('soon')")
    service.post("/v1/operations/op-1/approve")
    page.until(f"document.querySelector('#unapproved').hidden && {TROUBLE}.hidden")


def test_what_is_wrong_is_loud_and_first(page: Browser, service: Live) -> None:
    """A failed host is named on every view, before work, and its VMs are down, not running."""
    service.post("/v1/hosts/h2/reboot")
    service.post("/v1/hosts/h1/fail")
    show(page, f"{service.url}/#/")
    page.see("Host h1 has failed, 2 VMs down")
    first = "document.querySelector('.job').innerText"
    page.until(f"{first}.includes('h1') && {first}.includes('down')")
    assert "running" not in page.run("document.querySelector('main').innerText")
    press(page, "keyboard", "#trouble a")
    page.see("Host h1")
    service.post("/v1/hosts/h1/repair")
    page.until(f"{TROUBLE}.hidden")


def test_first_page_shows_what_is_under_way(page: Browser, service: Live) -> None:
    """Maintenances come with progress, blocker and end; and what happened in the last day."""
    service.call("PUT", "/v1/policy", WINDOWS)
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT5M", "reason": "kernel"}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    service.post("/v1/hosts/h4/fail")
    show(page, f"{service.url}/#/")
    for text in ("kernel", "0 of 2 hosts done", "has not approved event", "Planned end: "):
        page.see(text)
    page.see("In the last 24 hours: 1 host failed.")
    press(page, "mouse", "h2 [href='#/maintenances/m-1']")
    page.until("document.querySelectorAll('.timeline .piece.planned').length >= 2")
    names = "[...document.querySelectorAll('.timeline .lane-name')].map((each) => each.textContent)"
    assert page.run(names)[:4] == ["UTC", "nights", "Wave 1", "Wave 2"]
    press(page, "keyboard", "[data-zoom='1 week']")
    page.until("document.querySelector('.piece.open')")
