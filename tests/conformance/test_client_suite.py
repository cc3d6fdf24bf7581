"""The client suite passes clients that do their duties, and names what each wrong one does."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from forewarn.cli.main import main
from forewarn.conformance.client_run import AGENT, ClientOptions, run_stories, stories_named
from forewarn.conformance.client_trial import ClientUnstartable
from forewarn.conformance.run import Verdict

CLIENT = (sys.executable, "-S", "-I", str(Path(__file__).with_name("simple_client.py")))
ALL_AT_ONCE = 32
ROOT = Path(__file__).parents[2]


def clients_shown() -> Iterator[tuple[str, str]]:
    """Yield each client that the documents show, and where: it leaves the suite's marks."""
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        text = path.read_text("utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks, 1):
            if "CONFORMANCE_MARK" in block:
                yield f"{path.relative_to(ROOT).as_posix()} {number}", block


CLIENTS = dict(clients_shown())

#: What a client does wrong -> the story that shows it, and words of the fault.
WRONG = {
    "eager": ("life", "before preparing"),
    "nosy": ("another", "only another VM"),
    "growing": ("back", "has not approved"),
    "forgetful": ("restart", "has not recovered"),
    "busy": ("quiet", "too often"),
    "sluggish": ("quiet", "too rarely"),
    "fragile": ("reset", "ended with status 1"),
    "impatient": ("throttled", "too often"),
    "proxied": ("proxy", "used a proxy"),
    "redirected": ("redirect", "followed a redirect"),
    "faint": ("unanswered", "did not repeat an approval"),
    "headerless": ("quiet", "sent no header"),
    "repeating": ("moving", "times for one event"),
    "hasty": ("empty", "not over"),
}


@pytest.mark.slow
def test_agent_passes_every_story() -> None:
    """Our agent does all of a client's duties. Source: C-1 to C-3, C-6, C-7, C-9, E-3."""
    results = list(run_stories(stories_named([]), ClientOptions(AGENT, parallel=ALL_AT_ONCE)))
    assert {each.verdict for each in results} == {Verdict.PASSED}, results


@pytest.mark.slow
def test_simple_client_passes_every_story() -> None:
    """What is asked can be done in a hundred lines of anybody's, without this project's code."""
    results = list(run_stories(stories_named([]), ClientOptions(CLIENT, parallel=ALL_AT_ONCE)))
    assert {each.verdict for each in results} == {Verdict.PASSED}, results


@pytest.mark.slow
@pytest.mark.parametrize("document", CLIENTS)
def test_client_in_the_documents_passes_every_story(document: str, tmp_path: Path) -> None:
    """Whoever copies a client from the documents has one that does all of its duties."""
    client = tmp_path / "client.py"
    client.write_text(CLIENTS[document])
    options = ClientOptions((sys.executable, str(client)), parallel=ALL_AT_ONCE)
    results = list(run_stories(stories_named([]), options))
    assert [each for each in results if each.verdict is not Verdict.PASSED] == []


def test_documents_show_clients_with_and_without_the_sdk() -> None:
    """The clients of the documents are found."""
    assert {"README.md 1", "docs/howto/handle-events.md 2", "docs/tutorial/ci.md 1"} <= set(CLIENTS)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_client_is_named(wrong: str) -> None:
    """Each wrong client fails the story that is about its fault, in words that say which."""
    story, words = WRONG[wrong]
    options = ClientOptions((*CLIENT, wrong), patience_s=3.0)
    (result,) = run_stories(stories_named([story]), options)
    assert result.verdict is Verdict.FAILED
    assert words in result.reason


def test_client_without_marks_is_judged_by_its_approvals() -> None:
    """A client that cannot say when it has prepared is judged by the rest."""
    options = ClientOptions((*CLIENT, "eager"), marks=False)
    (result,) = run_stories(stories_named(["life"]), options)
    assert result.verdict is Verdict.PASSED


def test_reports_name_story_and_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text, JSON and JUnit say the same, and the exit status says whether all passed."""
    report = tmp_path / "report.xml"
    words = ["conformance", "client", "--story", "quiet", "--junit", str(report), "--json"]
    assert main([*words, "--", *CLIENT, "headerless"]) == 1
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert (check["statement"], check["link"]) == ("C-1", "docs/reference/contract.md#c-1")
    (failure,) = ET.parse(report).iter("failure")
    assert failure.attrib["message"] == check["reason"]
    assert main(["conformance", "client", "--story", "quiet", "--", *CLIENT]) == 0
    assert "ok    C-1   quiet" in capsys.readouterr().out


def test_client_that_cannot_be_started_is_said() -> None:
    """A missing program is one error, however many scenarios there are."""
    with pytest.raises(ClientUnstartable, match="/no/such/client cannot be started"):
        list(run_stories(stories_named(["quiet", "life"]), ClientOptions(("/no/such/client",))))


def test_placeholders_are_filled_in(tmp_path: Path) -> None:
    """A client that reads no environment is given the endpoint as a word."""
    words = ("sh", "-c", f"echo {{endpoint}} {{name}} > {tmp_path}/told; exit 7")
    (result,) = run_stories(stories_named(["quiet"]), ClientOptions(words))
    assert "ended with status 7" in result.reason
    assert (tmp_path / "told").read_text().startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("words", "status"),
    [((), 2), (("--story", "none"), 2), (("--list",), 0)],
    ids=["no command", "unknown story", "list"],
)
def test_command_line_is_checked(
    words: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing or unknown is said; the stories can be listed."""
    assert main(["conformance", "client", *words]) == status
    assert bool(capsys.readouterr().out) == (status == 0)
