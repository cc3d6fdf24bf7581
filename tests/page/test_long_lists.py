"""Lists of more than one page, in a real browser: what stands on page 2 is found and counted."""

from collections.abc import Iterator
from functools import partial

import pytest

from forewarn_server.api import (
    fleet_routes,
    maintenance_routes,
    outcome_routes,
    read_routes,
    ticket_routes,
)
from forewarn_store.tickets import TicketPage
from tests.api.live import Live
from tests.page.browser import PROGRAM, Browser
from tests.page.test_page import browser, page, press, show

__all__ = ["browser", "page"]  # fixtures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; Debian's package has it"),
]
#: Records of each list: the page asks for 100 at a time.
COUNT = 103
#: Hosts of which the names come in two pieces.
MANY = 1003
NAMES = [f"h{number:03}" for number in range(COUNT)]
ROWS = "main table tbody tr"
STORIES = "article.story"
MORE = "main button.plain:not([hidden])"


@pytest.fixture
def service(page: Browser) -> Iterator[Live]:
    """A service with 103 hosts, each with a lone VM; the page leaves it before it stops."""
    live = Live()
    live.fleet(
        hosts={name: {} for name in NAMES}, vms={f"vm-{name}": {"host": name} for name in NAMES}
    )
    yield live
    page.open("about:blank")
    live.stop()


def reboot(service: Live, names: list[str]) -> None:
    """Request a reboot of hosts, 50 in a request."""
    for start in range(0, len(names), 50):
        form = {"cause": "host-reboot", "targets": names[start : start + 50], "not_before": "+1h"}
        service.post("/v1/operations", **form)


def names_shown(page: Browser, rows: str) -> list[str]:
    """Return the text of the first link of each row, in the order of the page."""
    script = (
        f"[...document.querySelectorAll({rows!r})].map(row => row.querySelector('a').innerText)"
    )
    names = page.run(script)
    assert isinstance(names, list)
    return names


def until_shown(page: Browser, rows: str, count: int) -> None:
    """Wait until a number of rows is on the page."""
    number = f"document.querySelectorAll({rows!r}).length"
    page.until(f"{number} === {count}", f"{count} rows of {rows}")


@pytest.mark.parametrize("kind", ["hosts", "vms", "groups"])
def test_list_of_the_fleet_goes_on_with_its_second_page(
    page: Browser, service: Live, kind: str
) -> None:
    """Each record is shown once, and the button goes with the last page."""
    show(page, f"{service.url}/#/{kind}")
    until_shown(page, ROWS, 100)
    press(page, "mouse", MORE)
    until_shown(page, ROWS, COUNT)
    assert names_shown(page, ROWS) == (NAMES if kind == "hosts" else [f"vm-{n}" for n in NAMES])
    assert not page.run(f"document.querySelector({MORE!r})")


def test_work_history_and_maintenances_go_on_with_older_ones(page: Browser, service: Live) -> None:
    """The newest 100 are shown first, then the others."""
    reboot(service, NAMES)
    show(page, f"{service.url}/#/work")
    until_shown(page, ROWS, 100)
    press(page, "mouse", MORE)
    until_shown(page, ROWS, COUNT - 100)
    assert sorted(names_shown(page, ROWS)) == ["op-1", "op-2", "op-3"]
    for _ in range(COUNT):
        service.call(
            "POST", "/v1/maintenances", {"cause": "host-reboot", "hosts": ["h001"], "duration": 60}
        )
    show(page, f"{service.url}/#/maintenances")
    until_shown(page, STORIES, 100)
    press(page, "mouse", MORE)
    until_shown(page, STORIES, COUNT - 100)
    show(page, f"{service.url}/#/history?action=operation.announced")
    until_shown(page, ROWS, 100)
    press(page, "mouse", MORE)
    until_shown(page, ROWS, COUNT)


def test_views_that_count_read_every_page(
    page: Browser, service: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reminders, the report and a maintenance's hosts have what stands on later pages."""
    names = NAMES[:5]
    for module in (read_routes, outcome_routes):
        monkeypatch.setattr(module, "PAGE_MAX", 2)
    monkeypatch.setattr(maintenance_routes, "HOSTS_PAGE_MAX", 2)
    form = {"cause": "host-reboot", "hosts": names, "duration": 60}
    service.call("POST", "/v1/maintenances", form)
    service.post("/v1/maintenances/m-1/start")
    reboot(service, NAMES[10:15])
    service.settle()
    show(page, f"{service.url}/#/work?state=announced")
    press(page, "mouse", "[data-act=remind]")
    page.until("document.querySelector('dialog textarea')", "a message")
    message = page.run("document.querySelector('dialog textarea').value")
    assert [name for name in NAMES[10:15] if f"vm-{name}" not in message] == []
    page.key("Escape")
    service.advance(2 * 3600)
    for number in range(2, 12):  # m-1 has the number before
        service.call("POST", f"/v1/operations/op-{number}/complete")
    service.settle()
    show(page, f"{service.url}/#/report?only=all")
    until_shown(page, ROWS, 10)
    show(page, f"{service.url}/#/maintenances/m-1")
    press(page, "mouse", "details.racks summary")
    until_shown(page, "details.racks tbody tr", 5)
    monkeypatch.setattr(ticket_routes, "TicketPage", partial(TicketPage, limit=2))
    for name in names:
        form = {"target_kind": "host", "target": name, "category": "fan", "description": "loud"}
        assert service.call("POST", "/v1/tickets", form).status == 201
    show(page, f"{service.url}/#/tickets")
    until_shown(page, ROWS, 10)  # and the incidents of the windows that have passed


def test_dialog_counts_the_groups_of_every_page(
    page: Browser, service: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may have more groups that nobody asks than the answer to one request."""
    monkeypatch.setattr(fleet_routes, "LIST_MAX", 50)
    vms = {f"more-{number}": {"host": "h000"} for number in range(COUNT)}
    service.fleet(vms=vms)
    show(page, f"{service.url}/#/hosts/h000")
    press(page, "mouse", "[data-act=reboot_host]")
    page.until("document.querySelector('dialog .warning')", "the groups that are not asked")
    text = page.run("document.querySelector('dialog .warning').textContent")
    links = page.run("document.querySelectorAll('dialog .warning a').length")
    assert f"and {COUNT + 1 - links} more" in text, f"{COUNT + 1} groups, {links} named: {text}"
    page.key("Escape")


def test_of_many_operations_the_most_urgent_stay(page: Browser) -> None:
    """The page drops those that are due last, and keeps the one that is due first."""
    live, names = Live(), [f"h{number:04}" for number in range(MANY)]
    live.fleet(hosts={name: {} for name in names})
    held = "import('/web/live.js').then(({ live }) => [...live.operations.keys()])"
    try:
        show(page, f"{live.url}/#/work")
        live.post("/v1/operations", cause="host-reboot", targets=names[:1], not_before="+1h")
        for start in range(1, MANY, 50):
            targets = names[start : start + 50]
            live.post("/v1/operations", cause="host-reboot", targets=targets, not_before="+9h")
        last = f"op-{MANY}"
        page.run(
            "import('/web/live.js').then(({ live, listen }) => new Promise((done) => {"
            f"const look = () => live.operations.has('{last}') && done();"
            " listen(look); look(); setTimeout(done, 20000); }))"
        )
        ids = page.run(held)
        assert "op-1" in ids, f"op-1 is due first, and {len(ids)} others are kept"
    finally:
        page.open("about:blank")
        live.stop()


def test_page_asks_for_the_newest_commit_that_it_has_seen(page: Browser, service: Live) -> None:
    """A late answer of an earlier state must not let a follower show that state. Source: H-4."""
    show(page, f"{service.url}/#/hosts")
    asked = page.run(
        """import("/web/api.js").then(async ({ get }) => {
            const [real, asked] = [window.fetch, []];
            const generations = ["1000007", "1000005", "1000006"];
            window.fetch = async (_, { headers }) => {
                asked.push(headers["Forewarn-Generation"]);
                return new Response("{}", {
                    headers: { "Forewarn-Generation": generations[asked.length - 1] ?? "1" },
                });
            };
            try {
                for (const _ of generations) await get("/v1/version");
            } finally {
                window.fetch = real;
            }
            return asked;
        })"""
    )
    later = set(asked[1:])  # the page also reads on its own
    assert later == {"1000007"}, f"H-4: after commit 1000007, the page asks for {later}"


def test_compact_tables_stay_compact(page: Browser, service: Live) -> None:
    """A press shows more rows at once, and the browser remembers it on other pages."""
    show(page, f"{service.url}/#/vms")
    until_shown(page, ROWS, 100)
    tall = page.run("document.querySelector('main tbody tr').offsetHeight")
    press(page, "mouse", ".density")
    page.until(f"document.querySelector('main tbody tr').offsetHeight < {tall}")
    show(page, f"{service.url}/#/hosts")
    until_shown(page, ROWS, 100)
    page.until("document.querySelector('.density').ariaPressed === 'true'")
    page.run("localStorage.removeItem('forewarn-density')")


def test_map_knows_the_host_at_every_place(page: Browser) -> None:
    """Names are read by the thousand; the last host of a fleet is named, and opened."""
    live, last = Live(), f"h{MANY - 1:04}"
    live.fleet(hosts={f"h{number:04}": {} for number in range(MANY)})
    label = f"document.querySelector('.map')?.getAttribute('aria-label').includes('{MANY}')"
    try:
        page.open(live.url)
        page.until(label.replace(str(MANY), f"{MANY:,}") + " || " + label, "the map")
        page.tab_to(".map")
        page.key("End")
        said = f"document.querySelector('#said').textContent.startsWith('{last}: ')"
        page.until(said, f"the name of the last host, {last}")
        page.key("Enter")
        page.until(f"document.querySelector('h1').textContent.includes('Host {last}')")
    finally:
        page.open("about:blank")
        live.stop()
