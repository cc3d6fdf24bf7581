"""Every deliberate breakage of the product is noticed.

A row names who is asked first. Which world notices a breakage changes with the histories of worlds:
where that one no longer does, the others are asked, and the test says who did.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.mutant import Mutant
from tests.simulator.mutate import MUTANTS, TRANSCRIPTS, noticed_in_world

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "simulator.md"
MUTANTS_MIN = 25
KINDS = ("exploration", "world", "shells", "transcript", "assertion")
TIMEOUT_S = 600
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


def _try(mutant: Mutant) -> str:
    command = [
        sys.executable,
        "-m",
        "tests.simulator.mutate",
        mutant.name,
        "--first",
        mutant.caught_by,
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.stdout.strip() or done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_breakage_is_noticed(mutant: Mutant) -> None:
    """A breakage is noticed by an invariant or transcript; by whom is not pinned. Source: L-7."""
    noticed = _try(mutant)
    kind, _, name = noticed.partition(" ")
    assert kind in KINDS, noticed
    if noticed == mutant.caught_by:
        return
    print(f"{mutant.name} is noticed by {noticed!r} now; its row names {mutant.caught_by!r}")
    if kind in {"world", "shells"}:
        test_unbroken_product_violates_nothing(f"{kind} {name.partition(':')[0]}")


@pytest.mark.parametrize(
    "world",
    sorted(
        {
            mutant.caught_by.partition(":")[0]
            for mutant in MUTANTS
            if mutant.caught_by.startswith(("world", "shells"))
        }
    ),
)
def test_unbroken_product_violates_nothing(world: str) -> None:
    """A world that notices breakages has nothing to say of the sound product. Source: L-7."""
    kind, _, seed = world.partition(" ")
    assert noticed_in_world(int(seed), shells=kind == "shells") == ""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_breakage_applies(mutant: Mutant) -> None:
    """What a breakage edits stands in its module, once."""
    for module, old, new in mutant.edits:
        source = ROOT.joinpath("src", *module.split("."))
        path = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
        assert path.read_text("utf-8").count(old) == 1
        assert old != new


def test_there_are_enough_breakages() -> None:
    """Every name is used once, and every transcript that is named is there."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= MUTANTS_MIN
    transcripts = [m.caught_by for m in MUTANTS if m.caught_by[0] in "ta"]
    for name in {each.partition(" ")[2] for each in transcripts}:
        assert (TRANSCRIPTS / f"{name}.txt").is_file()


def table() -> str:
    """The table of breakages, as the page has it."""
    rows = ["| what is broken | noticed, for one, by |", "|---|---|"]
    for mutant in MUTANTS:
        kind, _, name = mutant.caught_by.partition(" ")
        if kind == "exploration":
            world, _, promise = name.partition(": ")
            who = f"exploration of `{world}`, {_promise(promise)}"
        elif kind == "shells":
            who = f"{_promise(name.partition(': ')[2])}, with connections"
        elif kind != "world":
            who = f"{kind} [{name}](../../tests/transcripts/{name}.txt)"
            who = who.replace("assertion", "an assertion of the product, in transcript")
        else:
            who = _promise(name.partition(": ")[2])
        rows.append(f"| {mutant.what} | {who} |")
    return "\n".join(rows)


def _promise(promise: str) -> str:
    return f"invariant {promise}" if promise.isdigit() else f"promise {promise}"


def test_page_shows_the_table() -> None:
    """The page on the simulator shows every breakage and who notices it."""
    text = PAGE.read_text(encoding="utf-8")
    shown = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == table(), f"put this between the marks in {PAGE.name}:\n\n{table()}"
