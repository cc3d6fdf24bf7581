"""The glossary has every word of the product's vocabulary, and no word that nothing uses."""

import re
from pathlib import Path

from forewarn_core.fleet.actions import ACTIONS
from forewarn_core.fleet.lifecycle import EventState, OperationState
from forewarn_core.fleet.maintenance import MaintenanceState, TargetState
from forewarn_core.fleet.topology import GroupKind, Health
from forewarn_server.control.service_state import ServiceState

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs/glossary.md"
TEXT = GLOSSARY.read_text(encoding="utf-8")
#: What is explained, in bold; and all that is marked as a word of ours.
TERMS = re.findall(r"\*\*([^*]+)\*\*", TEXT)
MARKED = {*TERMS, *re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", TEXT), *re.findall(r"`([^`]+)`", TEXT)}
STATES = (
    OperationState,
    EventState,
    MaintenanceState,
    TargetState,
    GroupKind,
    Health,
    ServiceState,
)


def vocabulary() -> set[str]:
    """Return the words of states and of the history's actions."""
    return {
        *(str(word.value) for states in STATES for word in states),
        *(action.partition(".")[0] for action in ACTIONS),
    }


def test_vocabulary_is_explained() -> None:
    """Every state and every subject of history is in the glossary."""
    assert sorted(vocabulary() - {word.lower() for word in MARKED}) == []


def test_tables_of_the_store_are_explained() -> None:
    """The reference of the store says what each table holds."""
    steps = (ROOT / "packages/forewarn-store/src/forewarn_store/schema").glob("*.sql")
    tables = re.findall(r"CREATE TABLE (\w+)", "".join(step.read_text("utf-8") for step in steps))
    assert "operation" in tables
    page = ROOT.joinpath("docs/reference/store.md").read_text("utf-8")
    assert [table for table in tables if f"`{table}`" not in page] == []


def test_every_term_is_used() -> None:
    """A word that no page and no message uses is explained to nobody."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page != GLOSSARY]
    used = " ".join(page.read_text(encoding="utf-8") for page in pages).lower()
    assert [term for term in TERMS if not re.search(rf"\b{term.lower()}", used)] == []


def test_no_term_is_explained_twice() -> None:
    """One word means one thing."""
    assert sorted(TERMS) == sorted(set(TERMS))
