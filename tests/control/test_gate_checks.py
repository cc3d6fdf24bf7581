"""Gates by a command, HTTP and a real Prometheus: what passes, what fails, what is bounded."""

from __future__ import annotations

import http.server
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.control.gate_checks import Gate, GateInvalid, make_gates, run_gate
from forewarn.validation.fields import ValidationFailed
from tests.prometheus import running_prometheus
from tests.waiting import wait_until


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers by its path: a status, a Prometheus that is none, or more than anybody reads."""

    def do_GET(self) -> None:
        name = self.path.strip("/").partition("/")[0].partition("?")[0]
        self.send_response(int(name) if name.isdecimal() else 200)
        self.end_headers()
        body = {"large": b"x" * 2_000_000, "nan": NAN}.get(name, b"{}")
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


NAN = b'{"status": "success", "data": {"resultType": "scalar", "result": [1, "NaN"]}}'


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an HTTP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


def command(script: str, **options: object) -> Gate:
    """A gate that runs Python."""
    return Gate("g", command=(sys.executable, "-c", script), **options)  # type: ignore[arg-type]


def test_command_passes_with_status_zero() -> None:
    """A command is given what it is asked for, and passes by its status. Source: F-5."""
    read = "import json,sys; sys.exit(json.load(sys.stdin)['maintenance'] != 'm-3')"
    assert run_gate(command(read), "m-3") == ""
    assert "ended with status 1" in run_gate(command(read), "m-4")


def test_command_says_why_it_fails() -> None:
    """Its last line on standard error is the reason, bounded and printable."""
    told = run_gate(command("import sys; sys.exit('4 % errors\\x1b[2J')"), "m-1")
    assert told.startswith("gate g: ")
    assert "4 % errors [2J" in told
    assert len(run_gate(command("import sys; sys.exit('x' * 4000)"), "m-1")) < 400


def test_command_is_bounded_in_time_and_output() -> None:
    """One that hangs or floods fails, and nothing of it is left. Source: F-5."""
    hangs = command("import threading; threading.Event().wait(60)", timeout_s=0.2)
    assert "has not ended" in run_gate(hangs, "m-1")
    assert "printed more than" in run_gate(command("print('x\\n' * 2_000_000)"), "m-1")
    assert "cannot be run" in run_gate(Gate("g", command=("/nonexistent",)), "m-1")


def test_command_may_be_tried_again(tmp_path: Path) -> None:
    """A gate passes if one of its tries does."""
    script = f"import pathlib, sys; p = pathlib.Path({str(tmp_path / 'n')!r})\n"
    script += "known = p.exists()\np.touch()\nsys.exit(not known)"
    assert run_gate(command(script, tries=2, every_s=0), "m-1") == ""


@pytest.mark.parametrize(
    ("path", "told"),
    [("/200", ""), ("/204", ""), ("/302", "answered 302"), ("/503", "answered 503")],
)
def test_url_passes_by_its_status(server: str, path: str, told: str) -> None:
    """200 to 299 passes; a redirect is not followed. Source: F-5."""
    found = run_gate(Gate("g", url=server + path), "m-1")
    assert told in found
    assert bool(found) == bool(told)


def test_url_that_nobody_answers_fails() -> None:
    """No connection, and no answer in time, fail. Source: F-5."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        found = run_gate(Gate("g", url=f"http://127.0.0.1:{port}/", timeout_s=0.2), "m-1")
        assert "cannot be reached" in found
    assert "cannot be reached" in run_gate(Gate("g", url=f"http://127.0.0.1:{port}/"), "m-1")


@pytest.mark.parametrize(
    ("path", "told"),
    [("/large", "gives more than"), ("/200", "not one of Prometheus"), ("/nan", "`up` is nan")],
)
def test_answer_that_is_no_result_fails(server: str, path: str, told: str) -> None:
    """What is too long, not Prometheus's, or not a number never passes. Source: F-5."""
    assert told in run_gate(Gate("g", prometheus=server + path, query="up"), "m-1")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"command": ["true"], "url": "http://h/"},
        {"prometheus": "http://h/"},
        {"query": "up", "url": "http://h/"},
        {"url": "file:///etc/passwd"},
    ],
    ids=["nothing", "two", "no-query", "no-server", "no-http"],
)
def test_gate_that_contradicts_itself_is_refused(options: dict[str, object]) -> None:
    """A table of the settings is one check, and whole."""
    with pytest.raises(GateInvalid):
        make_gates({"g": options})


def test_gate_with_an_unknown_option_is_refused() -> None:
    """A misspelt option is not silently left out."""
    with pytest.raises(ValidationFailed, match="unknown member 'comand'"):
        make_gates({"g": {"comand": ["true"]}})


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus that scrapes itself."""
    with running_prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        scraped = Gate("g", prometheus=server.address, query="up == 1")
        wait_until(lambda: not run_gate(scraped, "m-1"), limit_s=60)
        yield server.address


@pytest.mark.slow
def test_real_prometheus_decides_by_its_query(prometheus: str) -> None:
    """A comparison passes where it has a result; bounds hold for each value. Source: F-5."""

    def told(query: str, **options: object) -> str:
        gate = Gate("g", prometheus=prometheus, query=query, timeout_s=10, **options)  # type: ignore[arg-type]
        return run_gate(gate, "m-1")

    assert told("up == 1") == ""
    assert "has no result" in told("up == 0")
    assert "has no result" in told("no_such_metric")
    assert told("up", min=1, max=1) == ""
    assert "`up` is 1" in told("up", max=0.5)
    assert told("vector(0) < 5") == ""
    assert told("scalar(vector(3))", max=3) == ""
    assert "`0 / 0` is nan" in told("0 / 0")
    assert "Prometheus refused the query" in told("rate(")


def test_groups_must_poll_again() -> None:
    """It passes once the last of them has, and names those that have not. Source: F-5."""
    gate = Gate("g", polls=True, tries=3, every_s=0)
    left = [("db", "web"), ("web",), ()]
    assert run_gate(gate, "m-1", lambda: left.pop(0)) == ""
    many = tuple(f"g{n}" for n in range(8))
    told = run_gate(gate, "m-1", lambda: many)
    assert told == "gate g: not polling since the wave: g0, g1, g2, g3, g4 and 3 more"


def test_gate_waits_for_polls_where_nothing_is_said() -> None:
    """A VM needs its time to come back; what the settings say goes before. Source: F-5."""
    gates = make_gates(
        {"a": {"polls": True}, "b": {"polls": True, "tries": 2}, "c": {"url": "http://x"}}
    )
    assert [gates[name].tries for name in "abc"] == [20, 2, 1]
    with pytest.raises(GateInvalid):
        make_gates({"a": {"polls": True, "url": "http://x"}})
