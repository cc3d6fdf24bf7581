"""Text from others reaches a terminal, a log, mail or a chat as text, and nothing obeys it."""

import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest

from forewarn_base.log_format import JsonFormatter, TextFormatter
from forewarn_base.untrusted_text import escaped_lines, escaped_text, without_markup
from forewarn_server.cli.main import main
from tests.serving import HttpServer
from tests.waiting import LIMIT_S

#: Escape, bell, delete, C1, marks of direction, characters without width, a tag.
EVIL = "\x1b\x07\x7f\x9b\u061c\u200b\u200e\u2028\u202a\u202e\u2066\u2069\ufeff\U000e0041"
HEADERS = {"Content-Type": "application/json", "Forewarn-Time": "2027-01-15T08:00:00Z"}
DOCUMENT = {
    "DocumentIncarnation": 1,
    "Events": [
        {
            "EventId": f"E{EVIL}1",
            "EventType": "Reboot",
            "ResourceType": "VirtualMachine",
            "Resources": [f"vm{EVIL}"],
            "EventStatus": "Scheduled",
            "NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT",
            "Description": f"{EVIL}text",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
    ],
}


@pytest.fixture
def foreign() -> Callable[..., HttpServer]:
    """A server of others, whose answers contain every kind of character."""
    return lambda body: HttpServer(lambda _: (200, body, HEADERS))


def harmless(text: str) -> bool:
    """Return whether a text has printable lines only."""
    return all(line.isprintable() for line in text.split("\n"))


def test_escaped_json_has_the_same_value() -> None:
    """JSON with escapes instead of raw characters is JSON with the same value. Source: P-12."""
    text = json.dumps(DOCUMENT, ensure_ascii=False, indent=1)
    shown = escaped_lines(text.replace("\n", "\r\n"))
    assert harmless(shown)
    assert json.loads(shown) == DOCUMENT


def test_printable_text_stays() -> None:
    """Letters of all scripts, and the lines and columns of a text, are not changed."""
    assert escaped_lines("f\u00fcr\t\u6771\n\U0001f600") == "f\u00fcr\t\u6771\n\U0001f600"
    assert escaped_text("a\n\tb\r") == "a\\n\\tb\\r"


@pytest.mark.parametrize("words", [("--json",), ()])
def test_document_of_a_foreign_server_is_harmless(
    foreign: Callable[..., HttpServer], words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """A server's answer is printed without what a terminal would obey. Source: P-12."""
    with foreign(json.dumps(DOCUMENT, ensure_ascii=False).encode()) as server:
        assert main([*words, "document", "--url", server.url]) == 0
    printed = capfd.readouterr()
    assert "u202e" in printed.out
    assert harmless(printed.out + printed.err)
    assert not words or json.loads(printed.out) == DOCUMENT


@pytest.mark.parametrize("words", [("--json",), ()])
def test_answers_of_a_service_are_harmless(
    foreign: Callable[..., HttpServer], words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """Sentences, errors and JSON alike, whether the service accepts a call or refuses it."""
    error = {"code": "x", "message": f"no{EVIL}", "advice": EVIL}
    body = json.dumps({"error": error, "text": EVIL}, ensure_ascii=False).encode()
    for status, command in ((200, "policy"), (409, "host")):
        with HttpServer(lambda _, status=status: (status, body, HEADERS)) as server:  # type: ignore[misc]
            main(["--server", server.url, *words, command, "show", *["h1"][: status > 200]])
    printed = capfd.readouterr()
    assert "u202e" in printed.err
    assert harmless(printed.err)
    assert not words or harmless(printed.out)


@pytest.mark.parametrize("on_terminal", [True, False])
def test_file_is_exact_except_on_a_terminal(
    foreign: Callable[..., HttpServer], on_terminal: bool
) -> None:
    """A policy's text can be saved as it is, and a terminal shows it harmless. Source: P-12."""
    text = f"# {EVIL}\n"
    command = [
        sys.executable,
        "-c",
        "import sys; from forewarn_server.cli.main import main; main()",
    ]
    with foreign(text.encode()) as server:
        ours, theirs = pty.openpty() if on_terminal else os.pipe()
        command += ["--server", server.url, "policy", "show"]
        subprocess.run(command, stdout=theirs, timeout=LIMIT_S, check=True)
    os.close(theirs)
    printed = os.read(ours, 4096).decode()
    os.close(ours)
    assert (printed == text) is not on_terminal
    assert not on_terminal or harmless(printed.replace("\r\n", "\n"))


def test_help_on_a_terminal_has_its_own_colours() -> None:
    """Only text from others is escaped."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "forewarn_server.cli.main", "completion", "--help"]
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    subprocess.run(command, stdout=theirs, timeout=LIMIT_S, check=True, env=environment)
    os.close(theirs)
    printed = os.read(ours, 65536).decode(errors="replace")
    os.close(ours)
    assert "\x1b[" in printed
    assert "\\u001b" not in printed


@pytest.mark.parametrize("form", [TextFormatter, JsonFormatter])
def test_log_line_is_one_harmless_line(form: type[logging.Formatter]) -> None:
    """No text from others ends a line of the log, or begins one. Source: P-12."""
    record = logging.LogRecord("forewarn", logging.INFO, "", 0, "%s", (f"a\nb{EVIL}",), None)
    line = form().format(record)
    assert line.isprintable()
    assert "\\u202e" in line


def test_markup_is_text() -> None:
    """HTML, Markdown, links and mentions of chats lose the characters that make them."""
    text = without_markup('<a href="x">a</a> [b](http://c) <!channel> <http://d|e> @everyone')
    assert not set("<>[]@") & set(text)
    assert "(http://c)" in text
