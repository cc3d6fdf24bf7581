"""What people see: tables that fit, times that speak, nothing that steers the terminal."""

import io
import json

import pytest

from forewarn_base.protocol import timestamps
from forewarn_server.cli import output


@pytest.mark.parametrize(
    ("by_ms", "text"),
    [
        (0, "now"),
        (999, "now"),
        (90_000, "in 1 min 30 s"),
        (-90_000, "1 min 30 s ago"),
        (3_600_000, "in 1 h"),
        (3_601_000, "in 1 h"),
        (90_061_000, "in 1 d 1 h"),
        (-86_400_000, "1 d ago"),
    ],
)
def test_offset_has_two_units(by_ms: int, text: str) -> None:
    """How far off a time is, is told in at most two units."""
    assert output.offset(by_ms) == text


@pytest.mark.parametrize(
    ("widths", "width_max", "fitted"),
    [
        ([5, 5], 80, [5, 5]),
        ([50, 10], 42, [30, 10]),
        ([40, 40, 4], 60, [26, 26, 4]),
        ([9, 9, 9], 10, [8, 8, 8]),
    ],
)
def test_widest_columns_are_cut_first(widths: list[int], width_max: int, fitted: list[int]) -> None:
    """A table is cut to the terminal, but no column below what can be read."""
    assert output.fitted(widths, width_max) == fitted


class Terminal:
    """Standard output that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep it."""
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize("no_colour", [True, False])
def test_terminal_gets_colour_and_cuts(monkeypatch: pytest.MonkeyPatch, no_colour: bool) -> None:
    """A terminal gets lines of its width, in colour unless NO_COLOR."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(("state", "text"), [("running", "x" * 50)])
    assert ("\x1b[33m" in terminal.text) is not no_colour
    plain = terminal.text.replace("\x1b[33m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(len(line) for line in plain.splitlines()) == 30
    assert output.CUT in plain


@pytest.mark.parametrize(
    ("columns", "shown"), [("80", "2027-01-15T08:15:00Z (in 15 min)"), ("40", "in 15 min")]
)
def test_narrow_terminal_gets_short_times(
    monkeypatch: pytest.MonkeyPatch, columns: str, shown: str
) -> None:
    """Where a table would not fit, times say how far off they are before anything is cut."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    not_before = output.when("2027-01-15T08:15:00.391Z", timestamps.parse("2027-01-15T08:00:00Z"))
    output.print_table(("event", "not before"), [("x" * 20, not_before)])
    assert terminal.text.splitlines()[1] == f"{'x' * 20}  {shown}"


def test_pipe_gets_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets whole cells and no colour; control characters are shown, not obeyed."""
    output.print_table(("a", "b"), [(None, "x" * 300), (True, ["p", "q\x1b[2J"])])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("x" * 300)
    assert lines[2].split() == ["yes", "p,", "q\\u001b[2J"]


def test_facts_without_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what has a value is shown."""
    output.print_facts([("name", "x"), ("none", ""), ("longer", 3), ("tags", {})])
    assert capsys.readouterr().out == "name    x\nlonger  3\n"


def test_facts_write_labels_as_options_do(capsys: pytest.CaptureFixture[str]) -> None:
    """A label reads as `host add --label` takes it."""
    output.print_facts([("labels", {"rack": "r7", "tier": "gold"})])
    assert capsys.readouterr().out == "labels  rack=r7, tier=gold\n"


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_json_is_json_in_every_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """Programs read back what was meant, though the output's encoding lacks its characters."""
    form, written = {"text": "f\u00fcr \u6771 \U0001f600"}, io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding, write_through=True))
    output.print_json(form)
    output.print_json_line([form])
    whole, line = written.getvalue().decode(encoding).rsplit("[", 1)
    assert json.loads(whole) == form
    assert json.loads("[" + line) == [form]
