"""The documents keep up with the code: generated pages, links, decisions, notes of changes."""

import configparser
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.cli import ACTIONS
from forewarn_base.errors import every_error
from forewarn_base.protocol.versions import PREVIEW_VERSION, VERSIONS
from forewarn_core.rules.blockers import every_code
from forewarn_server.cli.application import check
from forewarn_server.cli.nouns import NOUNS
from tools.docs.clone import LINES, address, with_clone
from tools.docs.pages import PAGES
from tools.docs.reference import load_everything
from tools.product import files

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", "bench", "dist", "packages")
    for path in ROOT.joinpath(folder).glob("*.md" if folder == "." else "**/*.md")
)
FENCE = re.MULTILINE | re.DOTALL
HEADINGS = ("Status", "Context", "Decision", "Rejected", "Consequences")
DECISIONS = sorted(ROOT.glob("docs/adr/[0-9]*.md"))


def name_of(path: Path) -> str:
    """Return the path from the root, for the names of parametrized tests."""
    return path.relative_to(ROOT).as_posix()


def links_of(document: Path) -> Iterator[tuple[str, str]]:
    """Yield the file and the heading of every link to this repository."""
    text = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r'(?:src|href)="([^"]+)"', text
    ):
        if not re.match(r"[a-z]+:", target):
            path, _, heading = target.partition("#")
            yield path, heading


def anchors_of(document: Path) -> set[str]:
    """Return the headings and anchors of a document as links know them."""
    text = document.read_text("utf-8")
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    headings = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return headings | set(re.findall(r'<a id="([^"]+)">', text))


def commands_typed() -> Iterator[str]:
    """Yield what stands after `forewarn` in every block of the documents written by hand."""
    for document in DOCUMENTS:
        if name_of(document) not in PAGES:
            for block in re.findall(r"^ *```\n(.*?)^ *```$", document.read_text("utf-8"), FENCE):
                for line in block.splitlines():
                    found = re.search(r"(?:^|[ /])forewarn ((?!is)[a-z-]+(?: .*)?)$", line.strip())
                    if found and re.match(r"(\S+/|\S+=\S+ |ip netns .*/)?forewarn ", line.strip()):
                        yield found[1].removesuffix("&").partition("  ")[0].strip()


@pytest.mark.parametrize("path", PAGES)
def test_generated_page_is_up_to_date(path: str) -> None:
    """What is generated is what the code says now; `make docs` rewrites it."""
    written = ROOT.joinpath(path)
    assert written.exists(), f"run `make docs`: there is no {path}"
    assert written.read_text("utf-8") == PAGES[path](), f"run `make docs`: {path} is behind"


@pytest.mark.parametrize("path", LINES)
def test_address_to_clone_is_set_once(path: str) -> None:
    """Pages have the address of pyproject.toml, and another one changes only one line."""
    text = ROOT.joinpath(path).read_text("utf-8")
    assert with_clone(path, text, address()) == text, "run `make docs`"
    moved = with_clone(path, text, "https://git.example/forewarn.git")
    assert "git clone" in moved
    assert moved.count("https://git.example/forewarn.git forewarn") == 1
    assert with_clone(path, moved, address()) == text


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    """A link within the repository leads to a file, and to a heading that is in it."""
    for path, heading in links_of(document):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{name_of(document)} links to {path}"
        if heading and target.suffix == ".md":
            assert heading in anchors_of(target), f"{name_of(document)} links to {path}#{heading}"


def test_every_document_is_reachable() -> None:
    """From the README, following links, a reader gets to every document."""
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in reached or document.suffix != ".md":
            continue
        reached.add(document)
        waiting += [(document.parent / path).resolve() for path, _ in links_of(document) if path]
    exempt = {ROOT / "docs/adr/0000-template.md"}
    lost = [name_of(path) for path in DOCUMENTS if path not in reached | exempt]
    assert not lost, lost


@pytest.mark.parametrize("decision", DECISIONS, ids=name_of)
def test_decision_has_its_five_parts(decision: Path) -> None:
    """A decision says whether it binds, why, what, what else was thought of, and what follows."""
    text = decision.read_text("utf-8")
    assert tuple(re.findall(r"^## (.+)$", text, flags=re.MULTILINE)) == HEADINGS
    assert re.search(r"^## Status\n\n\*\*(In force|Superseded)\*\*", text, re.MULTILINE)


def test_decisions_are_numbered_in_order() -> None:
    """No number is missing or used twice, by a page or by a paragraph."""
    numbers = [path.name[:4] for path in DECISIONS]
    for page in ("README", "libraries-and-tools"):
        text = ROOT.joinpath(f"docs/adr/{page}.md").read_text("utf-8")
        numbers += re.findall(r'<a id="(\d{4})">', text)
    assert sorted(map(int, numbers)) == list(range(len(numbers)))


def test_every_api_version_is_documented() -> None:
    """A reader finds every api-version in the reference of the metadata service."""
    text = ROOT.joinpath("docs/reference/metadata.md").read_text("utf-8")
    missing = [version for version in (*VERSIONS, PREVIEW_VERSION) if f"`{version}`" not in text]
    assert not missing


def test_guide_to_stuck_work_has_every_blocker() -> None:
    """Each code that `why` prints has an action in a row of the table. Source: F-4."""
    text = (ROOT / "docs/howto/something-is-stuck.md").read_text("utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    codes = [code for row in rows for code in re.findall(r"`([a-z-]+)`", row.split("|")[1])]
    assert sorted(codes) == [each.value for each in every_code()]


def test_every_setting_has_its_meaning() -> None:
    """No setting is without a sentence."""
    rows = ROOT.joinpath("docs/reference/settings.md").read_text("utf-8").splitlines()
    assert [row for row in rows if row.startswith("- `") and row.rstrip().endswith("`:")] == []


def test_every_make_target_of_the_readme_exists() -> None:
    """What the documents tell a reader to type, make knows."""
    targets = set(
        re.findall(r"^([a-z-]+):", ROOT.joinpath("Makefile").read_text("utf-8"), re.MULTILINE)
    )
    for document in DOCUMENTS:
        told = set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE))
        assert told <= targets, f"{name_of(document)}: {told - targets}"


@pytest.mark.parametrize("typed", sorted(set(commands_typed())))
def test_command_in_the_documents_is_understood(typed: str) -> None:
    """What the documents tell a reader to type, the command understands."""
    words = shlex.split(typed.partition(" > ")[0])  # without the file that a shell writes
    if "--help" in words:
        words.remove("--help")
        assert words[0] in NOUNS
    else:
        check(words)


def test_every_command_of_the_agent_is_documented() -> None:
    """The reference of the agent has each of its commands."""
    page = ROOT.joinpath("docs/reference/agent.md").read_text("utf-8")
    assert [name for name in ACTIONS if not re.search(rf"`forewarn agent {name}\b", page)] == []


def test_settings_lie_in_a_directory_of_their_own() -> None:
    """No document puts a settings file where the packages have none."""
    for document in DOCUMENTS:
        assert re.findall(r"/etc/[\w-]+\.toml", document.read_text("utf-8")) == [], document


def test_nothing_is_installed_by_a_name_that_is_not_ours() -> None:
    """No package is published: whoever took the name on PyPI would be installed."""
    for path in (*DOCUMENTS, *files()):
        found = re.findall(r"pip install (?:-\S+ )*['\"]?forewarn\b.*", path.read_text("utf-8"))
        assert not found, f"{name_of(path)}: {found}"


def advices() -> str:
    """Return the advice of every error."""
    load_everything()
    return "\n".join(kind.advice for kind in every_error())


def test_advice_names_no_file_of_the_repository() -> None:
    """Whoever has only installed the program has no `docs`."""
    assert re.findall(r"(?:docs|dist|tools|tests)/\S+", advices()) == []


def test_page_of_the_documentation_that_advice_names_is_there() -> None:
    """A title in an error's advice is the title of a page."""
    named = set(re.findall(r"'([^']+)' in the documentation", advices()))
    titles = {
        title
        for path in DOCUMENTS
        for title in re.findall(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    }
    assert named
    assert named <= titles, named - titles


@pytest.mark.slow
def test_pytest_example_passes(tmp_path: Path) -> None:
    """The example tests of the how-to pass as they are written there."""
    page = ROOT.joinpath("docs/howto/test-with-pytest.md").read_text("utf-8")
    tests, options = re.findall(r"^```python\n(.*?)^```$", page, FENCE)
    tmp_path.joinpath("test_example.py").write_text(tests)
    compile(options, "options", "exec")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("contract", ["package-layers", "server-layers"])
def test_architecture_shows_the_layers_that_are_checked(contract: str) -> None:
    """The pictures of packages and rooms are those that the import contracts check."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts[f"importlinter:contract:{contract}"]["layers"]
    assert layers.strip() in ROOT.joinpath("ARCHITECTURE.md").read_text("utf-8")


def test_python_versions_are_the_same_everywhere() -> None:
    """The oldest Python is one number, in the package and in the README."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text("utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert f"Python {oldest}" in ROOT.joinpath("README.md").read_text("utf-8")


@pytest.mark.parametrize("document", ["nodes", "driver-threats", "access-threats"])
def test_each_threat_has_a_test(document: str) -> None:
    """What stands against a threat is shown by a test that there is."""
    text = (ROOT / "docs" / "explanation" / f"{document}.md").read_text("utf-8")
    table = text.partition("| threat |")[2].partition("\n\n")[0].splitlines()[2:]
    tests = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("packages/*/tests/**/test_*.py")]
    there = "\n".join(path.read_text("utf-8") for path in tests)
    assert table
    for row in table:
        named = re.findall(r"`([^`]+)`", row.rstrip(" |").rpartition("|")[2])
        missing = [
            name for name in named if f"def {name}(" not in there and not (ROOT / name).is_file()
        ]
        assert named, row
        assert not missing, row
