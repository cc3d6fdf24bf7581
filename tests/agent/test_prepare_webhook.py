"""The webhook preparation and the notifications, against a receiver on the loopback."""

import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from forewarn.agent.preparations.http_call import CallFailed, call
from tests.agent.programs import EVENT, do, done
from tests.serving import HttpServer, Request


class Receiver:
    """Takes what is posted, answering with the statuses it is given, then with 200."""

    def __init__(self) -> None:
        """Listen on a free port."""
        self.statuses: list[int] = []
        self.got: list[tuple[Mapping[str, str], bytes]] = []
        self.server = HttpServer(self._take)
        self.url = f"{self.server.url}/hook"

    def _take(self, request: Request) -> tuple[int, bytes, Mapping[str, str]]:
        self.got.append((request.headers, request.body))
        status = self.statuses.pop(0) if self.statuses else 200
        return status, b"", {"Location": "http://127.0.0.1:1/elsewhere"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a receiver."""
    one = Receiver()
    yield one
    one.server.close()


def test_event_is_posted_signed(receiver: Receiver, tmp_path: Path) -> None:
    """The receiver can check who sent it, and when."""
    key = tmp_path / "secret"
    key.write_text("swordfish\n")
    settings: dict[str, object] = {"url": receiver.url, "secret_file": str(key)}
    done("webhook", "prepare", settings, tmp_path / "state")
    ((headers, body),) = receiver.got
    signed = headers["x-forewarn-timestamp"].encode() + b"." + body
    wanted = hmac.new(b"swordfish", signed, hashlib.sha256).hexdigest()
    assert headers["x-forewarn-signature"] == f"sha256={wanted}"
    assert headers["x-forewarn-kind"] == "prepare"
    assert json.loads(body)["event"] == EVENT


def test_passing_failure_is_tried_again(receiver: Receiver, tmp_path: Path) -> None:
    """A receiver that is away for a moment still learns of the event."""
    receiver.statuses = [503, 200]
    assert "try 2" in done("webhook", "recover", {"url": receiver.url}, tmp_path / "state")
    assert [headers["x-forewarn-kind"] for headers, _ in receiver.got] == ["recover"] * 2


@pytest.mark.parametrize("status", [403, 302])
def test_refusal_fails_the_step(receiver: Receiver, tmp_path: Path, status: int) -> None:
    """A refusal ends it; a redirect is not followed."""
    receiver.statuses = [status]
    settings: dict[str, object] = {"url": receiver.url, "tries": 1}
    assert do("webhook", "prepare", settings, tmp_path / "state").returncode == 1
    assert len(receiver.got) == 1


def notify(
    settings: dict[str, object], level: str = "warning", text: str = "Reboot E1 is announced."
) -> subprocess.CompletedProcess[str]:
    """Send a notification as the agent does."""
    form = {
        "action": "seen",
        "level": level,
        "text": text,
        "name": "vm_0",
        "event": EVENT,
        "settings": settings,
    }
    command = [sys.executable, "-m", "forewarn.agent", "do", "notify"]
    return subprocess.run(
        command, input=json.dumps(form), capture_output=True, text=True, check=False
    )


def test_notification_is_a_cloud_event(receiver: Receiver) -> None:
    """Events can be logged centrally by whatever takes CloudEvents 1.0."""
    assert notify({"cloudevents": receiver.url}).returncode == 0
    ((headers, body),) = receiver.got
    form = json.loads(body)
    assert headers["content-type"].startswith("application/cloudevents+json")
    assert {"specversion", "id", "source", "type"} <= set(form)
    assert (form["specversion"], form["type"]) == ("1.0", "io.forewarn.event.seen")
    assert (form["subject"], form["data"]["text"]) == ("E1", "Reboot E1 is announced.")


def test_notification_below_the_level_is_not_sent(receiver: Receiver) -> None:
    """Who wants warnings only gets no more."""
    settings: dict[str, object] = {"webhook": receiver.url, "level": "warning"}
    assert notify(settings, "info").returncode == 0
    assert receiver.got == []
    notify(settings)
    assert len(receiver.got) == 1


@pytest.fixture
def apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the real Apprise on the path."""
    here = Path(sys.executable).parent
    if not (here / "apprise").exists():
        pytest.skip("Apprise is not installed beside this Python")
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")


@pytest.mark.usefixtures("apprise")
def test_apprise_posts_what_it_is_handed(receiver: Receiver) -> None:
    """The real Apprise, told to post to one of the hundred services it knows."""
    handed = notify({"apprise": [receiver.url.replace("http", "json", 1)]}, "error")
    assert handed.returncode == 0, handed.stderr
    ((_, body),) = receiver.got
    form = json.loads(body)
    assert (form["title"], form["message"]) == ("vm_0: seen", "Reboot E1 is announced.")
    assert form["type"] == "failure"


@pytest.mark.usefixtures("apprise")
def test_apprise_gets_text_without_markup(receiver: Receiver) -> None:
    """A description from the service has no links, images or mentions in mail. Source: P-12."""
    url = f"{receiver.url.replace('http', 'json', 1)}?format=html"
    assert notify({"apprise": [url]}, text="<img src=x> [a](http://b) @here").returncode == 0
    ((_, body),) = receiver.got
    assert not set("<[@") & set(json.loads(body)["message"])


@pytest.mark.usefixtures("apprise")
def test_apprise_that_cannot_deliver_is_said(receiver: Receiver) -> None:
    """What Apprise could not send is not taken for sent."""
    receiver.statuses = [400]
    assert notify({"apprise": [receiver.url.replace("http", "json", 1)]}).returncode == 1


def test_missing_apprise_is_said(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notification that cannot be handed over does not look as if it were."""
    monkeypatch.setenv("PATH", "/nowhere")
    failed = notify({"apprise": ["json://127.0.0.1"], "webhook": receiver.url})
    assert "not installed" in failed.stderr
    assert failed.returncode == 1
    assert len(receiver.got) == 1


def test_secrets_of_a_url_are_not_said() -> None:
    """The log of an agent is read by more people than its configuration."""
    failed = notify({"webhook": "http://me:pass@127.0.0.1:9/T0/secret?key=secret"})
    assert failed.returncode == 1
    assert "http://127.0.0.1:9" in failed.stderr
    assert not any(word in failed.stderr for word in ("me:", "pass", "secret"))


def test_secrets_are_in_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of a machine sees the words of every command."""
    apprise = tmp_path / "apprise"
    apprise.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/words; cat "${{10}}" >{tmp_path}/urls\n')
    apprise.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert notify({"apprise": ["json://me:pass@127.0.0.1", "json://two"]}).returncode == 0
    assert "pass" not in (tmp_path / "words").read_text()
    assert (tmp_path / "urls").read_text() == "json://me:pass@127.0.0.1\njson://two"


@pytest.mark.parametrize("query", ["sig=hidden word", "sig=hidd\u00e9n"])
def test_url_that_cannot_be_asked_is_not_shown_whole(receiver: Receiver, query: str) -> None:
    """A query may hold a secret."""
    with pytest.raises(CallFailed) as failed:
        call("GET", f"{receiver.url}?{query}")
    assert "characters that HTTP does not allow" in str(failed.value)
    assert "hidd" not in str(failed.value)
