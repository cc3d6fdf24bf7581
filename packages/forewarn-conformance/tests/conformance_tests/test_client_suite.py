"""The client suite passes clients that do their duties, and names what each wrong one does."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from forewarn_conformance.client_run import AGENT, ClientOptions, run_stories, stories_named
from forewarn_conformance.client_trial import ClientUnstartable
from forewarn_conformance.run import Result, Verdict
from forewarn_server.cli.main import main
from tests.waiting import LIMIT_S, wait_until

CLIENT = (sys.executable, "-S", "-I", str(Path(__file__).with_name("simple_client.py")))
#: Stories that run in parallel: they mostly wait for their clients to poll.
AT_ONCE_MAX = 16
ROOT = Path(__file__).parents[4]


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
    "forgetful": ("over", "has not recovered"),
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
    "punctual": ("clock-behind", "has not approved"),
    "patient": ("clock-ahead", "has not approved"),
    "surprised": ("failure", "has not recovered"),
    "zealous": ("failure", "not over"),
    "stuttering": ("failure", "times from one event"),
}


#: The clients that differ most; the others are nightly.
EVERY_TIME = ("agent", "simple", "README.md 1")
RIGHT = [
    each if each in EVERY_TIME else pytest.param(each, marks=pytest.mark.nightly)
    for each in ("agent", "simple", *CLIENTS)
]


def results_of(trials: list[tuple[str, str, ClientOptions]]) -> dict[str, list[Result]]:
    """Run stories in parallel, each named with its client; return the results of each client."""
    results: dict[str, list[Result]] = {client: [] for client, _, _ in trials}

    def run(trial: tuple[str, str, ClientOptions]) -> None:
        client, story, options = trial
        results[client] += run_stories(stories_named([story]), options)

    with ThreadPoolExecutor(AT_ONCE_MAX) as executor:
        list(executor.map(run, trials))
    return results


@pytest.fixture(scope="module", params=RIGHT)
def right(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Run a client that does its duties through every story."""
    commands = {"agent": AGENT, "simple": CLIENT}
    if request.param in CLIENTS:
        client = tmp_path_factory.mktemp("client") / "client.py"
        client.write_text(CLIENTS[request.param])
        commands[request.param] = (sys.executable, str(client))
    options = ClientOptions(commands[request.param])
    return results_of([("right", each.name, options) for each in stories_named([])])["right"]


@pytest.fixture(scope="module")
def wrong() -> dict[str, list[Result]]:
    """Run each wrong client through its story."""
    options = {each: ClientOptions((*CLIENT, each), patience_s=3.0) for each in WRONG}
    return results_of([(each, story, options[each]) for each, (story, _) in WRONG.items()])


@pytest.mark.slow
def test_client_passes_every_story(right: list[Result]) -> None:
    """So do our agent, a hundred lines of anybody's, and each client that the documents show.

    Source: C-1 to C-3, C-6, C-7, C-9 to C-11, E-3, V-4.
    """
    assert [each for each in right if each.verdict is not Verdict.PASSED] == []
    assert len(right) == len(stories_named([]))


def test_documents_show_clients_with_and_without_the_sdk() -> None:
    """The clients of the documents are found."""
    assert {"README.md 1", "docs/howto/handle-events.md 2", "docs/tutorial/ci.md 1"} <= set(CLIENTS)


@pytest.mark.parametrize("client", WRONG)
def test_wrong_client_is_named(client: str, wrong: dict[str, list[Result]]) -> None:
    """Each wrong client fails the story that is about its fault, in words that say which."""
    [result] = wrong[client]
    assert result.verdict is Verdict.FAILED
    assert WRONG[client][1] in result.reason


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


def test_client_that_sends_no_request_is_started_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other stories would all say the same."""
    starts = tmp_path / "starts"
    command = ("sh", "-c", f"echo >> {starts}; echo no endpoint >&2; exit 1")
    assert main(["conformance", "client", "--json", "--", *command]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert "ended with status 1: no endpoint" in checks[0]["reason"]
    assert {check["verdict"] for check in checks[1:]} == {"skipped"}
    assert len(checks) == len(stories_named([]))
    assert starts.read_text() == "\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals end a process there")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_suite_that_is_ended_leaves_no_client(tmp_path: Path, number: signal.Signals) -> None:
    """A CI system ends a job by a signal; its clients would poll for ever."""
    pids = tmp_path / "pids"
    client = ("sh", "-c", f'echo $$ >> {pids}; exec "$@"', "-", *CLIENT)
    words = [
        sys.executable,
        "-m",
        "forewarn_server.cli.main",
        "conformance",
        "client",
        "--",
        *client,
    ]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as suite:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) > 8, what="clients")
        suite.send_signal(number)
        assert suite.wait(LIMIT_S) == 128 + number
    started = [int(pid) for pid in pids.read_text().split()]
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
