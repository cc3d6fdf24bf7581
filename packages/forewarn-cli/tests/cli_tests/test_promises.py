"""`forewarn promises`: figures for people and programs, and a report to send to somebody."""

import csv
import io
from html.parser import HTMLParser

import pytest

from forewarn_base.exit_codes import OK
from tests.api.live import Live
from tests.cli.conftest import Run

SHOP = '<b>"shop" & sons</b>'


@pytest.fixture
def busy(live: Live) -> Live:
    """A service whose hosts were worked on, and that has an owner with a name like HTML."""
    live.fleet(groups={"web": {"owner": SHOP}}, hosts={}, vms={})
    for host in ("h1", "h2"):
        number = live.post(f"/v1/hosts/{host}/reboot")["operations"][0]["id"]
        live.advance(3600)
        live.advance(600)
        live.post(f"/v1/operations/{number}/complete")
    live.post("/v1/hosts/h1/fail")
    live.advance(60)
    return live


class Page(HTMLParser):
    """The elements of a page, and what they refer to."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        if tag not in {"meta", "rect", "line"}:
            self.open.append(tag)
        self.references += [each or "" for name, each in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        """An element ends; a rectangle has a title within."""
        if tag not in {"meta", "rect", "line"}:
            assert self.open.pop() == tag


def test_figures_are_shown_in_total_and_by_owner(busy: Live, run: Run) -> None:
    """The same figures as those of the API. Source: T-15."""
    done = run("promises", "--by", "owner", "--json")
    assert done.json["parts"] == busy.get("/v1/promises?by=owner")["parts"]
    assert done.json["total"]["events"] == 5
    printed = run("promises", "show", "--by", "owner").out
    assert "announced before" in printed
    assert "60 % (3 of 5)" in printed
    rows = list(csv.DictReader(io.StringIO(run("promises", "--by", "owner", "-o", "csv").out)))
    assert {each["name"] for each in rows} == {SHOP, ""}


@pytest.mark.parametrize("form", ["text", "csv", "json", "html"])
def test_month_is_reported_in_each_form(busy: Live, run: Run, form: str) -> None:
    """Each has the figures of the month. Source: T-15."""
    done = run("promises", "report", "--month", "2027-01", "--format", form)
    assert done.status == OK
    assert "2027-01" in done.out
    assert ("60 %" if form in {"text", "html"} else "60.0") in done.out


def test_page_of_a_month_stands_alone_and_is_escaped(busy: Live, run: Run) -> None:
    """It refers to nothing, its elements are closed, and names are text. Source: T-15, P-12."""
    text = run("promises", "report", "--month", "2027-01", "--format", "html").out
    page = Page(text)
    assert page.open == []
    assert page.references == []
    assert not {"script", "b", "link", "img"} & {*page.tags}
    assert page.tags.count("svg") == 3
    assert page.tags.count("rect") >= 2
    assert "&lt;b&gt;&quot;shop&quot; &amp; sons&lt;/b&gt;" in text


def test_month_without_events_is_a_report_too(live: Live, run: Run) -> None:
    """Shares of nothing are not shown as figures. Source: T-15."""
    live.advance(60)
    text = run("promises", "report", "--month", "2027-01", "--format", "html").out
    assert "<dd>—" in text
    assert run("promises", "report", "--month", "2027-13").status != OK
