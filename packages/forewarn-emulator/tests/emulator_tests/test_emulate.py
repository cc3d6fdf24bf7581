"""`forewarn emulate` as people start it: a process, its greeting, its ports, its end.

What happens inside may be looked at only through its ports and its words.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from emulator_tests.asking import PATH, Start, events, get, post, started
from emulator_tests.conftest import ANYWHERE
from forewarn_base.exit_codes import USAGE
from forewarn_server.cli.api_client import ApiClient, ApiRefused
from forewarn_server.cli.main import main
from tests.waiting import LIMIT_S


def test_stranger_sees_an_event_live_and_die(process: Start) -> None:
    """One command, and a plain client sees, approves, sees it start. Source: B-4, L-1, A-1."""
    emulator, url, api = started(process)
    assert get(url) == {"DocumentIncarnation": 0, "Events": []}
    api.post("/v1/vms/vm-1/reboot")
    [event] = events(get(f"{url}&wait=30&incarnation=0"))
    assert (event["EventStatus"], event["Resources"]) == ("Scheduled", ["vm-1"])
    post(url, str(event["EventId"]))
    [event] = events(get(f"{url}&wait=30&incarnation=1"))
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")
    api.post("/v1/clock/advance", {"by": "5m"})
    assert get(url) == {"DocumentIncarnation": 3, "Events": []}
    said = emulator.read_until("nothing")
    assert "vm-1 sees incarnation 1: Reboot Scheduled (vm-1, not before " in said
    assert "op-1 reboot of vm-1 is running: everybody approved" in said
    assert emulator.end() == (0, "")


def test_page_of_another_site_sees_nothing(process: Start) -> None:
    """A domain that was made to resolve to this machine is refused unless allowed. Source: E-4."""
    _, url, _ = started(process, "--allow-host", "CI.example:8169")
    for host in ("ci.example", "ci"):
        assert get(url, {"Host": host})["Events"] == []
    with pytest.raises(HTTPError) as refused:
        get(url, {"Host": "evil.example"})
    assert refused.value.code == 400


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signal_ends_it_while_somebody_waits(process: Start, number: int) -> None:
    """A held request and a scenario do not hold the end up. Source: E-9."""
    emulator, url, _ = started(process, "--scenario", "shared-host")
    emulator.read_until("sees incarnation 1")
    split = urlsplit(url)
    with socket.create_connection((split.hostname or "", split.port or 0), timeout=LIMIT_S) as held:
        head = f"GET {PATH}&wait=300&incarnation=1 HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n"
        held.sendall(head.encode())
        assert emulator.end(number) == (0, "")


def test_quiet_emulator_says_nothing(process: Start, free_ports: tuple[int, int]) -> None:
    """`--quiet` leaves both channels to the one who asked for it."""
    metadata, operator = free_ports
    emulator = process(
        *("--quiet", "--listen", f"127.0.0.1:{metadata}"),
        *("--operator-listen", f"127.0.0.1:{operator}", "--scenario", "host-reboot"),
    )
    url = f"http://127.0.0.1:{metadata}{PATH}"
    document: dict[str, object] = {"Events": []}
    while not events(document):
        try:
            document = get(f"{url}&wait=30&incarnation=0")
        except OSError:
            assert emulator.process.poll() is None
    assert emulator.end() == (0, "")
    assert emulator.lines.get() == ""


def test_port_in_use_is_told_with_advice(process: Start) -> None:
    """Whoever starts a second one is told what is taken and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        status, errors = process("--listen", place, "--operator-listen", "none").wait()
        assert status == 1
        assert place in errors
        assert "in use" in errors
        status, errors = process("--listen", ANYWHERE, "--operator-listen", place).wait()
        assert status == 1
        assert place in errors
        assert "--operator-listen" in errors


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--speed", "0"), "speed"),
        (("--fault", "teapot"), "teapot"),
        (("--fault", "500=vm=nobody"), "There is no VM nobody"),
        (("--scenario", "no-such"), "scenario list"),
        (("--scenario", "/nowhere/mine.toml"), "/nowhere/mine.toml"),
        (("--topology", "/nowhere/fleet.toml"), "/nowhere/fleet.toml"),
        (("--vm", "not a name"), "not a name"),
        (("--vm", "a=nowhere"), "forewarn emulate --help"),
        (("--vm", "a", "--vm", "a"), "--vm names a twice"),
        (("--listen", "nonsense"), "nonsense"),
        (("--enable-on-first-request", "soon"), "forewarn emulate --help"),
        (("--enable-on-first-request", "3m"), "from 0 s to 2 min"),
        (("--speed", "1e9"), "1e+09"),
        (("--speed", "fast"), "'fast' must be a number"),
        (("--rate-limit", "-1"), "rate"),
        (("--started-for", "soon"), "--started-for"),
        (("--started-for", "2d"), "--started-for"),
        (("--max-user-operations", "-1"), "--max-user-operations"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_strange_option_is_refused_in_words(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], word: str
) -> None:
    """A wrong option ends it with a sentence, never with a traceback."""
    usual = ("emulate", "--operator-listen", "none", "--listen", ANYWHERE)
    assert main((*usual, *arguments)) == USAGE
    errors = capfd.readouterr().err
    assert word in errors
    assert "Traceback" not in errors


def test_programs_are_greeted_in_json(process: Start) -> None:
    """With `--json` the first line says where everything is, the others what happens."""
    emulator = process("--json", "--listen", ANYWHERE, "--operator-listen", ANYWHERE)
    greeting = json.loads(emulator.read_until("metadata"))
    ApiClient(greeting["operator"]).post("/v1/vms/vm-1/reboot")
    line = json.loads(emulator.read_until("announced"))
    assert line["text"] == "op-1 reboot of vm-1 is announced"
    assert get(greeting["metadata"][0] + PATH)["DocumentIncarnation"] == 1
    assert emulator.end() == (0, "")


def test_listener_may_go_away(tmp_path: Path, free_ports: tuple[int, int]) -> None:
    """When nobody reads what it says any more, it goes on serving. Source: L-1."""
    port, operator = free_ports
    places = ("--listen", f"127.0.0.1:{port}", "--operator-listen", f"127.0.0.1:{operator}")
    errors = tmp_path / "errors"
    with errors.open("wb") as channel:
        command = [sys.executable, "-m", "forewarn_server.cli.main", "emulate", "--json", *places]
        emulator = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=channel)
    assert emulator.stdout is not None
    assert b"metadata" in emulator.stdout.readline()
    emulator.stdout.close()
    api = ApiClient(f"http://127.0.0.1:{operator}")
    for number in (1, 2):
        api.post("/v1/vms/vm-1/reboot")
        api.post(f"/v1/operations/op-{number}/cancel")
    document = get(f"http://127.0.0.1:{port}{PATH}&wait=30&incarnation=3")
    assert document == {"DocumentIncarnation": 4, "Events": []}
    emulator.send_signal(signal.SIGINT)
    assert emulator.wait(LIMIT_S) == 0
    assert errors.read_bytes() == b""


def test_store_survives_a_restart(process: Start, tmp_path: Path) -> None:
    """The event announced before the end is there after it, under its id. Source: L-7, D-1, D-3."""
    store = ("--store", str(tmp_path / "emulator.db"), "--seed", "4")
    emulator, url, api = started(process, *store)
    api.post("/v1/vms/vm-1/reboot")
    before = get(f"{url}&wait=30&incarnation=0")
    assert emulator.end() == (0, "")
    _, url, api = started(process, *store)
    assert get(url) == before
    [event] = events(before)
    post(url, str(event["EventId"]))
    assert get(f"{url}&wait=30&incarnation=1")["DocumentIncarnation"] == 2
    api.post("/v1/clock/advance", {"by": "5m"})
    api.post("/v1/vms/vm-1/reboot")
    [other] = events(get(f"{url}&wait=30&incarnation=3"))
    assert other["EventId"] != event["EventId"]


def test_seed_makes_ids_repeat(process: Start) -> None:
    """The same seed gives the same ids, another one others. Source: D-3."""
    found = []
    for seed in ("11", "11", "12"):
        emulator, url, api = started(process, "--seed", seed)
        api.post("/v1/vms/vm-1/reboot")
        [event] = events(get(f"{url}&wait=30&incarnation=0"))
        found.append(event["EventId"])
        emulator.end()
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_story_of_ones_own_is_told(process: Start, story: Callable[[str], Path]) -> None:
    """`--scenario FILE` with `--speed`: over by itself in scaled time. Source: B-4."""
    path = story(
        'title = "Mine"\n'
        '[vms."$vm"]\nspot = true\n'
        '[[steps]]\nat = "60s"\ndo = "eviction"\non = "$vm"\nas = "gone"\nduration = "10s"\n'
        '[[steps]]\nwait = "ended"\nfor = "gone"\n'
        '[[steps]]\nsay = "all is done"\n'
    )
    emulator, url, _ = started(process, "--scenario", str(path), "--speed", "600")
    said = emulator.read_until("scenario mine is over")
    for word in ("Preempt Scheduled", "Preempt Started", "eviction of vm-1 is over", "all is done"):
        assert word in said
    assert get(url)["Events"] == []


def test_fault_is_met_from_the_start(process: Start) -> None:
    """`--fault` is set before the first request. Source: E-10."""
    _, url, api = started(process, "--fault", "500", "--fault", "slow-first=1s")
    with pytest.raises(OSError, match="500"):
        get(url)
    assert [each["kind"] for each in api.get("/v1/faults")["faults"]] == ["500", "slow-first"]


def test_rate_is_limited_only_if_wanted(process: Start) -> None:
    """Many requests at once are answered, unless `--rate-limit` says otherwise. Source: E-6."""
    for options, statuses in (((), {200}), (("--rate-limit", "1"), {200, 429})):
        _, url, _ = started(process, *options)
        polls = [partial(status, url, "2020-07-01", Metadata="true")] * 50
        with ThreadPoolExecutor(25) as pool:  # at once: one after another may be slow enough
            assert set(pool.map(lambda poll: poll(), polls)) == statuses


def status(url: str, version: str, body: bytes | None = None, **headers: str) -> int:
    """Return how a request by an api-version is answered."""
    asked = urllib.request.Request(url.replace("2020-07-01", version), body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
            return int(answer.status)
    except HTTPError as refused:
        refused.close()
        return refused.code


def test_settings_of_the_environment_count(process: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting of the metadata service is the emulator's, too, unless an option is given."""
    monkeypatch.setenv("FOREWARN_METADATA_MIN_API_VERSION", "2019-08-01")
    monkeypatch.setenv("FOREWARN_METADATA_SCHEDULEDEVENTS_UNKNOWN_VERSION_STATUS", "404")
    _, url, _ = started(process, "--vm", "a", "--vm", "b")
    assert status(url, "2019-04-01", Metadata="true") == 404
    assert status(url, "2019-08-01", Metadata="true") == 200
    _, url, _ = started(process, "--vm", "b", "--scheduledevents-unknown-version-status", "400")
    assert status(url, "2019-04-01", Metadata="true") == 400


@pytest.mark.parametrize(
    ("name", "word"),
    [("PREVIEWS", "perhaps preview"), ("MIN_API_VERSION", "it may be one of 2017-03-01")],
)
def test_wrong_setting_of_the_environment_is_refused(
    process: Start, monkeypatch: pytest.MonkeyPatch, name: str, word: str
) -> None:
    """Neither a wrong name nor a wrong value is taken for a setting that works."""
    monkeypatch.setenv(f"FOREWARN_METADATA_{name}", "yes")
    code, errors = process("--listen", ANYWHERE, "--operator-listen", "none").wait()
    assert (code, word in errors) == (USAGE, True)


@pytest.mark.parametrize("option", [(), ("--post-without-header",), ("--compat",)], ids=str)
def test_old_clients_are_served_on_request(process: Start, option: tuple[str, ...]) -> None:
    """Approvals of 2017 may lack the header; an unknown version is 404. Source: E-2, E-3."""
    _, url, api = started(process, *option)
    api.post("/v1/vms/vm-1/reboot")
    [event] = events(get(f"{url}&wait=30&incarnation=0"))
    body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode()
    accepted = 200 if option else 400
    found = [status(url, version, body) for version in ("2017-08-01", "2017-11-01", "2019-01-01")]
    assert found == [accepted, accepted, 400]
    assert status(url, "2016-01-01", Metadata="true") == 404


@pytest.mark.parametrize("option", [(), ("--compat",)], ids=str)
def test_clients_in_use_find_what_they_ask_for(process: Start, option: tuple[str, ...]) -> None:
    """OpenShift's termination handler may ask for 2024-07-09, and ends after all but 200 and 404.

    cloud-init falls back after a 400, and asks again without end after a 404. Source: E-3, I-1.
    """
    _, url, _ = started(process, *option)
    assert get(url.replace("2020-07-01", "2019-08-01"))["Events"] == []
    assert status(url, "2024-07-09", Metadata="true") == 404
    instance = url.replace("scheduledevents", "instance")
    assert get(instance.replace("2020-07-01", "2021-08-01&extended=true"))["compute"]
    assert status(instance, "2039-08-01", Metadata="true") == 400


def test_options_of_work_reach_it(process: Start) -> None:
    """Events are Started for as long as is asked for, and users' work is limited. D-9, O-1."""
    words = ("--started-for", "10m", "--max-user-operations", "1")
    _, _, api = started(process, *words)
    api.post("/v1/vms/vm-1/reboot")
    with pytest.raises(ApiRefused, match="the limit is 1"):
        api.post("/v1/vms/vm-1/redeploy")
    api.post("/v1/clock/advance", {"by": "30m"})
    [outcome] = api.get("/v1/outcomes")["outcomes"]
    assert outcome["lasted_s"] >= 600
    assert outcome["interruption_ms"] == 60_000


def test_command_is_answered_as_soon_as_vms_are(
    process: Start, free_ports: tuple[int, int]
) -> None:
    """Who polls first and then types a command is not refused, but waits for the API."""
    port, operator = free_ports
    words = ("--quiet", "--listen", f"127.0.0.1:{port}")
    process(*words, "--operator-listen", f"127.0.0.1:{operator}")
    for _ in range(100_000):
        try:
            get(f"http://127.0.0.1:{port}{PATH}")
            break
        except OSError:
            continue
    api = ApiClient(f"http://127.0.0.1:{operator}")
    assert [vm["name"] for vm in api.get("/v1/vms")["vms"]] == ["vm-1"]


def test_command_runs_to_its_end_in_this_process(
    capsys: pytest.CaptureFixture[str], free_ports: tuple[int, int]
) -> None:
    """The whole command from its options to Ctrl-C, where its lines can be counted."""
    port, operator = free_ports
    url = f"http://127.0.0.1:{port}{PATH}"

    def interrupt() -> None:
        for _ in range(100_000):
            try:
                if events(get(f"{url}&wait=1&incarnation=0")):
                    break
            except OSError:
                continue
        os.kill(os.getpid(), signal.SIGINT)

    words = ["emulate", "--json", "--listen", f"127.0.0.1:{port}", "--seed", "3", "--vm", "a"]
    words += ["--operator-listen", f"127.0.0.1:{operator}", "--fault", "429=1x,post"]
    words += ["--scenario", "user-reboot", "--enable-on-first-request", "--rate-limit", "1000"]
    other = threading.Thread(target=interrupt)
    other.start()
    assert main(words) == 0
    other.join()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0]["metadata"] == [f"http://127.0.0.1:{port}"]
    assert any("scenario user-reboot begins on a" in line["text"] for line in said[1:])


def test_windows_could_start_it() -> None:
    """Nothing that only POSIX has is imported on the way to the emulator and the client."""
    program = """
import asyncio, pytest, socket, ssl, subprocess, sys, threading, types  # as Windows has them
import zoneinfo
blocked = {"uvloop", "fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name in blocked:
            raise ImportError(f"there is no {name} here")
for name in blocked:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refusing())
windows = types.ModuleType("msvcrt")
windows.LK_NBLCK, windows.locking = 2, lambda *_: None
sys.modules["msvcrt"] = windows
asyncio.new_event_loop().close()  # of this system: Python chooses the kind once
sys.platform = "win32"
import importlib, pkgutil
import forewarn.agent, forewarn_server.cli, forewarn_cli, forewarn_emulator
import forewarn_metadata.endpoint.http.asyncio_transport
for room in (forewarn_server.cli, forewarn_cli, forewarn_emulator, forewarn.agent):
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)
from forewarn.testing import EmulatorThread
emulator = EmulatorThread().start()
emulator.run_scenario("host-reboot")
print(emulator.document().events[0].status)
emulator.stop()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("Scheduled\n", "")
