"""The examples of docs/howto/write-a-driver.md, run as they stand there."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_base.validation.toml_reader import read_toml
from forewarn_drivers.registry import make_driver
from forewarn_drivers.webhook.signing import check_report
from tests.drivers.tasks import ended, now_ms, task
from tests.serving import HttpServer, Request

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "write-a-driver.md"
SECRET = b"a secret of thirty-two bytes 012"


def example(language: str, containing: str) -> str:
    """Return the example that contains a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", HOWTO.read_text("utf-8"), re.DOTALL)
    [found] = [each for each in blocks if containing in each]
    return str(found)


class Bmc:
    """A management board that speaks as much Redfish as a power cycle needs."""

    def __init__(self) -> None:
        """Serve until closed; the host is on."""
        self.resets: list[str] = []
        self.looks = 0
        self._server = HttpServer(self._respond)
        self.url, self.close = self._server.url, self._server.close

    def _respond(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        if request.method == "POST":
            assert request.path.endswith("/ComputerSystem.Reset")
            self.resets.append(request.json["ResetType"])
            return 204, b"", {}
        assert request.path == "/redfish/v1/Systems/1"
        self.looks += 1
        return 200, b'{"PowerState": "%s"}' % (b"Off" if self.looks == 1 else b"On"), {}


@pytest.fixture
def bmc() -> Iterator[Bmc]:
    """A management board."""
    board = Bmc()
    yield board
    board.close()


def test_example_of_a_power_cycle(bmc: Bmc, tmp_path: Path) -> None:
    """The board is told once, and the task ends when the host is on again. Source: R-4."""
    boards = tmp_path / "boards.json"
    boards.write_text(json.dumps({"h1": bmc.url}))
    program = tmp_path / "power-cycle"
    source = example("python", "management board")
    program.write_text(source.replace("/etc/forewarn/boards.json", str(boards)))
    program.chmod(0o755)
    options = options_of("drivers.board", tmp_path)
    driver = make_driver("board", {**options, "begin": [sys.executable, str(program)]})
    driver.begin(task())
    driver.begin(task())
    assert ended(driver, task()).done
    assert bmc.resets == ["PowerCycle"]


def options_of(table: str, tmp_path: Path) -> dict[str, object]:
    """Return an example's settings."""
    name = table.partition(".")[2]
    options: dict[str, Any] = read_toml(example("toml", f"[{table}]"))["drivers"][name]
    return options


def ansible() -> str:
    """Return the directory that has Ansible; skip without."""
    places = os.pathsep.join((os.environ.get("TEST_PROGRAMS", ""), os.environ["PATH"]))
    found = shutil.which("ansible-playbook", path=places)
    if found is None:
        pytest.skip("ansible-playbook is not on the PATH: pip install ansible-core")
    return found


@pytest.mark.slow
def test_example_of_a_playbook(tmp_path: Path) -> None:
    """A playbook has the task's members as variables; its output is for people. Source: R-4."""
    playbook = tmp_path / "reboot.yml"
    playbook.write_text(
        "- hosts: localhost\n  gather_facts: false\n  connection: local\n  tasks:\n"
        f"    - copy: {{content: '{{{{ task }}}} {{{{ host }}}}', dest: {tmp_path}/done}}\n"
    )
    options = options_of("drivers.ansible", tmp_path)
    words = options["begin"]
    assert isinstance(words, list)
    begin = [str(playbook) if each == "/etc/forewarn/reboot.yml" else each for each in words]
    driver = make_driver("ansible", {**options, "begin": [ansible(), *begin[1:]]})
    driver.begin(task())
    said = ended(driver, task())
    assert said.done, said
    assert (tmp_path / "done").read_text() == "op-12/1 h1"


def test_example_of_a_ticket_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the example signs is believed. Source: R-4."""
    sent: list[Any] = []
    there: dict[str, Any] = {}
    exec(compile(example("python", "hmac"), str(HOWTO), "exec"), there)
    monkeypatch.setattr(there["urllib"].request, "urlopen", sent.append)
    there["report"](SECRET, "http://127.0.0.1:1", "op-12/1", done=True)
    headers = {name.lower(): text for name, text in sent[0].header_items()}
    now_s = now_ms() // 1000
    assert (
        abs(check_report(SECRET, "tickets", headers, body=sent[0].data, now_s=now_s) - now_s) < 60
    )
