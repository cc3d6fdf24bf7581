"""Gates by a command, HTTP and a real Prometheus: what passes, what fails, what is bounded."""

import itertools
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn_server.control import gate_checks
from forewarn_server.control.gate_checks import (
    ANSWER_BYTES_MAX,
    SAMPLES_MAX,
    Gate,
    GateInvalid,
    make_gates,
    run_gate,
)
from tests.drivers.dripping import HEADS, dripping
from tests.prometheus import running_prometheus
from tests.serving import HttpServer, Request
from tests.waiting import wait_until


class Target:
    """Answers by its path: a status, a Prometheus that is none, or more than anybody reads."""

    def __init__(self) -> None:
        """Serve."""
        self.asked: list[str] = []
        self.answer = b""
        self.server = HttpServer(self._respond)

    def _respond(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        self.asked.append(request.path)
        name = request.path.strip("/").partition("/")[0].partition("?")[0]
        body = {"large": b"x" * 2_000_000, "nan": NAN, "said": self.answer}.get(name, b"{}")
        return int(name) if name.isdecimal() else 200, b"" if name == "204" else body, {}


NAN = b'{"status": "success", "data": {"resultType": "scalar", "result": [1, "NaN"]}}'


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """An HTTP server."""
    target = Target()
    yield target
    target.server.close()


@pytest.fixture
def server(target: Target) -> str:
    """Its address."""
    return target.server.url


def gate_of(**options: object) -> Gate:
    """Return the gate `g` with these options of its table."""
    return make_gates({"g": options})["g"]


def command(script: str, **options: object) -> Gate:
    """A gate that runs Python, and fails at once where it has no answer."""
    options = {"unanswered_timeout_s": 0, **options}
    return gate_of(command=[sys.executable, "-c", f"exec({script!r})"], **options)


@pytest.mark.parametrize("name", ["url", "prometheus"])
@pytest.mark.parametrize("secret", ["/hidden", "/?sig=hidden", "/hidden space"])
def test_gate_names_the_host_of_its_address_alone(server: str, name: str, secret: str) -> None:
    """A gate's reason stands in history; the rest of an address may be a password."""
    for address in (server + "/500" + secret, "http://me:hidden@127.0.0.1:1" + secret):
        options = {name: address, "unanswered_timeout_s": 0}
        options |= {"query": "up"} if name == "prometheus" else {}
        told = run_gate(gate_of(**options), "m-1")
        assert told
        assert "hidden" not in told


def test_command_passes_with_status_zero() -> None:
    """A command is given what it is asked for, and passes by its status. Source: F-5."""
    read = "import json,sys; sys.exit(json.load(sys.stdin)['maintenance'] != 'm-3')"
    assert run_gate(command(read), "m-3") == ""
    assert "ended with status 1" in run_gate(command(read), "m-4")


def test_command_says_why_it_fails() -> None:
    """Its last line on standard error is the reason, bounded and printable."""
    told = run_gate(command("import sys; sys.exit('4 % errors\\x1b[2J')"), "m-1")
    assert told.startswith("gate g: ")
    assert "4 % errors\N{REPLACEMENT CHARACTER}[2J" in told
    assert len(run_gate(command("import sys; sys.exit('x' * 4000)"), "m-1")) < 400


def test_command_is_bounded_in_time_and_output() -> None:
    """One that hangs or floods fails, and nothing of it is left. Source: F-5."""
    hangs = command("import threading; threading.Event().wait(60)", timeout_s=0.2)
    assert "has not ended" in run_gate(hangs, "m-1")
    assert "printed more than" in run_gate(command("print('x\\n' * 2_000_000)"), "m-1")
    assert "cannot be run" in run_gate(gate_of(command=["/nonexistent"]), "m-1")


def test_command_may_be_tried_again(tmp_path: Path) -> None:
    """A gate passes if one of its tries does."""
    script = f"import pathlib, sys; p = pathlib.Path({str(tmp_path / 'n')!r})\n"
    script += "known = p.exists()\np.touch()\nsys.exit(not known)"
    assert run_gate(command(script, tries=2, every_s=0), "m-1") == ""


@pytest.mark.parametrize(("tries", "named"), [(1, False), (2, True)])
def test_failed_gate_says_how_often_it_was_tried(tries: int, named: bool) -> None:
    """One try needs no number. Source: F-5."""
    reason = run_gate(command("raise SystemExit(1)", tries=tries, every_s=0), "m-1")
    assert ("(tried 2 times)" in reason) == named


@pytest.mark.parametrize(
    ("path", "told"),
    [
        *(("/200", ""), ("/204", ""), ("/299", "")),
        *(("/300", "answered 300"), ("/302", "answered 302"), ("/503", "answered 503")),
    ],
)
def test_url_passes_by_its_status(server: str, path: str, told: str) -> None:
    """200 to 299 passes; a redirect is not followed. Source: F-5."""
    found = run_gate(gate_of(url=server + path), "m-1")
    assert told in found
    assert bool(found) == bool(told)


def test_url_that_nobody_answers_fails_after_its_time() -> None:
    """No connection, and no answer in time, fail in the end. Source: F-5."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        gate = gate_of(url=url, timeout_s=0.2, unanswered_timeout_s=0)
        assert "cannot be reached" in run_gate(gate, "m-1")
    gate = gate_of(url=url, tries=5, every_s=60, unanswered_timeout_s=0.1)
    assert "cannot be reached" in run_gate(gate, "m-1")


def queried(url: str) -> Gate:
    """A gate with a query of Prometheus."""
    return gate_of(prometheus=url, query="up")


@pytest.mark.parametrize(
    ("gate", "statuses"),
    [
        pytest.param(lambda url: gate_of(url=url), (502, 504, 429), id="url"),
        pytest.param(queried, (500, 502, 503), id="prometheus"),
    ],
)
def test_check_without_an_answer_is_no_failed_try(
    monkeypatch: pytest.MonkeyPatch, gate: Callable[[str], Gate], statuses: tuple[int, ...]
) -> None:
    """A proxy or Prometheus that starts again stops no maintenance. Source: F-5."""
    monkeypatch.setattr(gate_checks, "UNANSWERED_EVERY_S", 0.01)
    left = list(statuses)

    def respond(_: Request) -> tuple[int, bytes, dict[str, str]]:
        return (left.pop(0), b"", {}) if left else (200, result("1"), {})

    with HttpServer(respond) as server:
        assert run_gate(gate(server.url), "m-1") == ""
    assert left == []


@pytest.mark.parametrize("way", ["exit 75", "test -e {0}.late || (touch {0}.late; sleep 60)"])
def test_command_without_an_answer_is_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """75 says "not now", and a command that takes too long says nothing. Source: F-5."""
    monkeypatch.setattr(gate_checks, "UNANSWERED_EVERY_S", 0.01)
    seen = tmp_path / "seen"
    script = f"test -e {seen} && exit 0; touch {seen}; {way.format(seen)}"
    assert run_gate(gate_of(command=["sh", "-c", script], timeout_s=0.3), "m-1") == ""


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_answer_that_never_ends_fails_in_time(head: bytes) -> None:
    """A byte now and then keeps no gate waiting beyond its time. Source: F-5."""
    with dripping(head) as url:
        gate = gate_of(url=url, timeout_s=0.2, unanswered_timeout_s=0)
        assert "takes more than 0.2 s" in run_gate(gate, "m-1")


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"url": "/200/a?b=c%20d"}, "/200/a?b=c%20d"),
        ({"url": ""}, "/"),
        ({"prometheus": "", "query": "up > 0"}, "/api/v1/query?query=up+%3E+0"),
        ({"prometheus": "/base/", "query": "up"}, "/base/api/v1/query?query=up"),
    ],
    ids=["query", "no-path", "prometheus", "below-a-path"],
)
def test_address_is_asked_as_it_was_given(
    target: Target, options: dict[str, str], sent: str
) -> None:
    """Path and query reach the far side. Source: F-5."""
    url = target.server.url
    whole = {name: word if name == "query" else url + word for name, word in options.items()}
    target.asked.clear()
    run_gate(gate_of(**whole), "m-1")
    assert target.asked == [sent]


def result(*values: object, kind: str = "vector") -> bytes:
    """An answer of Prometheus."""
    samples = [{"metric": {}, "value": [1, each]} for each in values]
    found = samples if kind == "vector" else [1, *values]
    told = {"status": "success", "data": {"resultType": kind, "result": found}}
    return json.dumps(told).encode()


@pytest.mark.parametrize(
    ("answer", "bounds", "told"),
    [
        (result("1", "2"), {}, ""),
        (result("1", "2"), {"min": 1, "max": 2}, ""),
        (result("1", "2"), {"min": 1.5}, "`up` is 1"),
        (result("1", "2"), {"max": 1.5}, "`up` is 2"),
        (result(), {}, "`up` has no result"),
        (result("3", kind="scalar"), {"max": 3}, ""),
        (result("3", kind="scalar"), {"max": 2}, "`up` is 3"),
        (result(*["1"] * SAMPLES_MAX), {}, ""),
        (result(*["1"] * (SAMPLES_MAX + 1)), {}, "not from Prometheus"),
        (result("1") + b" " * (ANSWER_BYTES_MAX - len(result("1"))), {}, ""),
        (result("1") + b" " * (ANSWER_BYTES_MAX - len(result("1")) + 1), {}, "more than 1048576"),
        (b'{"status": "error", "error": "no such thing"}', {}, "query: no such thing"),
        (b'{"status": "error"}', {}, "refused the query: 200"),
        (b'{"status": "success", "data": {"resultType": "vector"}}', {}, "not from Prometheus"),
        (b'{"status": "success", "data": {"resultType": "scalar", "result": []}}', {}, "not from"),
        (b"[" * 100_000, {}, "not from Prometheus"),
    ],
    ids=itertools.count(),
)
def test_query_decides_by_each_of_its_values(
    target: Target, answer: bytes, bounds: dict[str, float], told: str
) -> None:
    """Bounds include their ends, and what is too much or nothing fails. Source: F-5."""
    target.answer = answer
    prometheus = f"{target.server.url}/said"
    found = run_gate(gate_of(prometheus=prometheus, query="up", **bounds), "m-1")
    assert told in found
    assert bool(found) == bool(told)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"command": []}, True),
        ({"command": ["x"] * 100}, False),
        ({"command": ["x"] * 101}, True),
        ({"command": ["x" * 4096]}, False),
        ({"command": ["x" * 4097]}, True),
        ({"url": "http://h/" + "x" * 4087}, False),
        ({"url": "http://h/" + "x" * 4088}, True),
        ({"url": "http://h", "timeout_s": 0.1}, False),
        ({"url": "http://h", "timeout_s": 0.05}, True),
        ({"url": "http://h", "timeout_s": 3600}, False),
        ({"url": "http://h", "timeout_s": 3601}, True),
        ({"url": "http://h", "tries": 1}, False),
        ({"url": "http://h", "tries": 0}, True),
        ({"url": "http://h", "tries": 1000}, False),
        ({"url": "http://h", "tries": 1001}, True),
        ({"url": "http://h", "every_s": 0}, False),
        ({"url": "http://h", "every_s": -1}, True),
        ({"url": "http://h", "every_s": 3600}, False),
        ({"url": "http://h", "every_s": 3601}, True),
        ({"url": "http://h", "ca_file": "x" * 4097}, True),
        ({"prometheus": "http://h/" + "x" * 4088, "query": "up"}, True),
        ({"prometheus": "http://h", "query": "x" * 4097}, True),
        ({"prometheus": "https://h", "query": "x" * 4096}, False),
    ],
    ids=itertools.count(),
)
def test_options_of_a_gate_have_limits(options: dict[str, object], refused: bool) -> None:
    """What a gate may take is bounded where it is described. Source: F-5."""
    if refused:
        with pytest.raises(GateInvalid):
            make_gates({"g": options})
    else:
        assert make_gates({"g": options})["g"].name == "g"


@pytest.mark.parametrize(
    ("count", "told"), [(1, "g0"), (5, "g0, g1, g2, g3, g4"), (6, " and 1 more")]
)
def test_reason_names_five_groups(count: int, told: str) -> None:
    """A reason is a sentence, not a list. Source: F-5."""
    groups = [f"g{n}" for n in range(count)]
    assert run_gate(gate_of(polls=True, tries=1), "m-1", lambda: groups).endswith(told)


def test_reason_is_bounded() -> None:
    """Behind the gate's name at most 300 characters are kept. Source: F-5."""
    told = run_gate(command("import sys; sys.exit('x' * 4000)"), "m-1")
    assert len(told) == len("gate g: ") + 300


def test_tries_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a pause between two tries, and none before the first or behind the last. F-5."""
    pauses: list[object] = []
    monkeypatch.setattr(threading.Event, "wait", lambda _, timeout=None: pauses.append(timeout))
    tried: list[int] = []

    def silent() -> list[str]:
        tried.append(len(pauses))
        return ["web"]

    assert run_gate(gate_of(polls=True, tries=3, every_s=7), "m-1", silent)
    assert (tried, pauses) == ([0, 1, 2], [7, 7])


@pytest.mark.parametrize(
    ("path", "told"),
    [("/large", "gives more than"), ("/200", "not from Prometheus"), ("/nan", "`up` is nan")],
)
def test_answer_that_is_no_result_fails(server: str, path: str, told: str) -> None:
    """What is too long, not Prometheus's, or not a number never passes. Source: F-5."""
    assert told in run_gate(gate_of(prometheus=server + path, query="up"), "m-1")


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
    with pytest.raises(GateInvalid) as refused:
        make_gates({"g": {"comand": ["true"]}})
    assert str(refused.value).startswith("[gates.g] has the unknown member 'comand'; known: ")
    assert "'Check between waves'" in refused.value.advice_text()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus that scrapes itself."""
    with running_prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        scraped = gate_of(prometheus=server.address, query="up == 1")
        wait_until(lambda: not run_gate(scraped, "m-1"))
        yield server.address


@pytest.mark.slow
def test_real_prometheus_decides_by_its_query(prometheus: str) -> None:
    """A comparison passes where it has a result; bounds hold for each value. Source: F-5."""

    def told(query: str, **options: object) -> str:
        gate = gate_of(prometheus=prometheus, query=query, timeout_s=10, **options)
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
    gate = gate_of(polls=True, tries=3, every_s=0)
    left = [("db", "web"), ("web",), ()]
    assert run_gate(gate, "m-1", lambda: left.pop(0)) == ""
    many = tuple(f"g{n}" for n in range(8))
    told = run_gate(gate, "m-1", lambda: many)
    assert (
        told
        == "gate g: no poll since the last wave from g0, g1, g2, g3, g4 and 3 more (tried 3 times)"
    )


def test_gate_waits_for_polls_where_nothing_is_said() -> None:
    """A VM needs its time to come back; what the settings say goes before. Source: F-5."""
    gates = make_gates(
        {"a": {"polls": True}, "b": {"polls": True, "tries": 2}, "c": {"url": "http://x"}}
    )
    assert [gates[name].tries for name in "abc"] == [20, 2, 1]
    with pytest.raises(GateInvalid):
        make_gates({"a": {"polls": True, "url": "http://x"}})
