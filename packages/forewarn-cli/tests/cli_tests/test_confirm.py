"""Changes that cannot be taken back: a person is asked first, a script is not."""

import io
import json
from pathlib import Path

import pytest

from forewarn_base.exit_codes import OK, REFUSED
from tests.api.live import Live
from tests.cli.conftest import Run

#: Command, and the question that it asks.
QUESTIONS = {
    ("vm", "delete", "web-0"): "Delete VM web-0?",
    ("vm", "evict", "web-0", "db-0"): "Evict VMs web-0, db-0?",
    ("vm", "remove", "web-0"): "Remove VM web-0 from the fleet?",
    ("host", "remove", "h1"): "Remove host h1 from the fleet?",
    ("group", "remove", "web"): "Remove group web from the fleet?",
    ("host", "fail", "h1"): "Mark host h1 as failed, with all VMs there down?",
    ("host", "fail", "--selector", "zone=2"): "Mark all hosts with zone=2 as failed",
    ("operation", "cancel", "op-1"): "Cancel op-1?",
    ("maintenance", "cancel", "m-1"): "Cancel m-1?",
}


class Terminal(io.StringIO):
    """Standard input of a person who types this."""

    def isatty(self) -> bool:
        """Whether a person types: yes."""
        return True


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_person_who_does_not_agree_changes_nothing(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], typed: str
) -> None:
    """Only y and yes agree; the end of input does not."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    before = live.get("/v1/history?order=newest&limit=1")
    ran = run(*words)
    assert (ran.status, QUESTIONS[words] in ran.err) == (REFUSED, True)
    assert "Nothing was changed. [declined]" in ran.err
    assert live.get("/v1/history?order=newest&limit=1") == before


@pytest.mark.parametrize(("typed", "option"), [("y\n", ()), ("YES\n", ()), ("", ("--yes",))])
def test_person_who_agrees_is_obeyed(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch, typed: str, option: tuple[str, ...]
) -> None:
    """An agreement, or `--yes`, sends the request."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert run("vm", "delete", "web-0", *option).status == OK
    assert len(live.get("/v1/operations")["operations"]) == 1


def test_script_is_not_asked(run: Run, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the command acts as before."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("vm", "delete", "web-0").status == OK
    assert len(live.get("/v1/operations")["operations"]) == 1


def test_topology_shows_what_would_change_before_it_asks(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A person sees the changes by zone and owner, and may decline."""
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"hosts": {"n1": {"zone": "b"}}}))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    declined = run("topology", "apply", str(file))
    assert (declined.status, "n1" in live.get("/v1/topology")["hosts"]) == (REFUSED, False)
    assert "+ host n1\n\nZONE  HOSTS\nb     +1\n" in declined.out
    assert "Apply 1 added (1 host), 0 changed, 0 removed?" in declined.err
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run("topology", "apply", str(file)).out == declined.out
    assert "n1" in live.get("/v1/topology")["hosts"]
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert run("topology", "apply", str(file)).status == OK
