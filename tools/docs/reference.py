"""Writes the pages of causes, blockers, errors and settings from the code that defines them.

Explanations belong in `docs/explanation`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import get_type_hints

from forewarn_base import settings
from forewarn_base.errors import ForewarnError, every_error
from forewarn_core.fleet.impact import NOTICE_S, TRAITS, Source, Traits
from forewarn_core.rules.blockers import Code, Judge, every_code
from tools.product import modules

WRITTEN = "<!-- Written by `make docs`; edit the code it comes from, not this page. -->\n"


def causes_page() -> str:
    """Return the table of causes, from the core's table."""
    head = ("cause", "done to", "type", "source", "routine", "least notice", "duration", "text")
    rows = []
    for cause, traits in TRAITS.items():
        kinds = (traits.impact, *traits.also)
        shown = [traits.shown(kind) for kind in kinds]
        rows.append((
            f"`{cause.value}`",
            traits.target.value,
            _either(kind.value for kind in kinds),
            traits.source.value,
            _routine(traits),
            "none: it has happened"
            if traits.fault
            else _either(duration(NOTICE_S[kind]) for kind in kinds),
            _either({-1: "unknown", 0: "none"}.get(each, duration(each)) for _, each in shown),
            _either(text or "(empty)" for text, _ in shown),
        ))  # fmt: skip
    return page(
        "Causes and what they announce",
        "Each cause is a disturbance of a host or a virtual machine that becomes an event.",
        "If a row has two types, the first is the default; other cells list their values in the"
        " same order.",
        "An operator may set a longer notice, a duration and a text, but never a shorter notice.",
        "Terminate notice is set for each group, between 5 and 15 minutes; without it a deletion"
        " is not announced.",
        "",
        *table(head, rows),
    )


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))


def _routine(traits: Traits) -> str:
    if not traits.routine:
        return "no"
    return "yes" if traits.source is Source.PLATFORM else "for the platform"


def blockers_page() -> str:
    """Return the table of blockers, from their codes and meanings."""
    rows = [
        (f"`{code.value}`", code.meaning.meaning, code.meaning.end, _judges(code))
        for code in every_code()
    ]
    return page(
        "Blockers",
        "A blocker is the reason why an operation, a host, a wave or a maintenance waits.",
        "`forewarn operation why`, the API, the page, the log and the metrics use these codes,"
        " which stay.",
        "Each blocker also has a sentence, the time since when it holds, and the earliest time at"
        " which it can clear, where that is known.",
        "A rule of maintenances is judged by the planner, by the independent checker of each plan,"
        " at the admission of a host to its wave, and before the start of announced work; the last"
        " column says by which of them.",
        "",
        *table(("code", "meaning", "what ends it", "judged by"), rows),
    )


def _judges(code: Code) -> str:
    return ", ".join(each.value for each in Judge if each in code.meaning.judges)


def errors_page() -> str:
    """Return every error with its code and meaning, by status."""
    load_everything()
    lines = [
        "Every refusal carries one of these codes, with a message and advice on what to do.",
        "`forewarn explain CODE` prints all three offline.",
        "The code and its HTTP status are stable; the texts may change.",
        "Commands use them, too.",
        "4xx is a mistake in the call, 502 a fault of another system, 500 a bug or a broken store.",
    ]
    by_status: dict[int, list[str]] = {}
    for kind in sorted(every_error(), key=lambda kind: (kind.status, kind.code)):
        if kind is not ForewarnError:
            by_status.setdefault(kind.status, []).append(f"- `{kind.code}`: {meaning_of(kind)}")
    for status, errors in by_status.items():
        lines += ["", f"## {status}", "", *errors]
    return page("Errors", *lines)


def meaning_of(kind: type[ForewarnError]) -> str:
    """Return the meaning of an error without its source."""
    return re.sub(r" (Source: .*|[A-Z]-\d+\.)$", "", (kind.__doc__ or "").partition("\n")[0])


def settings_page() -> str:
    """Return every setting with its default and its meaning."""
    lines = [
        "The service reads one TOML file (`forewarn serve --config FILE`).",
        "The fragments `FILE.d/*.toml`, in the order of their names, override it.",
        "The environment overrides both: `[listen] workers` is `FOREWARN_LISTEN_WORKERS` there.",
        "Each line below is a setting with its default.",
        "A commented file with every default is [forewarn.toml](../../dist/forewarn.toml).",
    ]
    for section, kind in sections().items():
        lines += ["", f"## [{section}]", "", summary(inspect.getdoc(kind) or ""), ""]
        lines += (setting_line(one) for one in settable(section, kind))
    return page("Settings", *lines)


def settings_file() -> str:
    """Return the commented settings file of the service's packages."""
    lines = [
        "# Settings of the Forewarn service, all at their defaults. Written by `make docs`.",
        "# Change this file, or add forewarn.toml.d/*.toml; see docs/reference/settings.md.",
    ]
    for section, kind in sections().items():
        lines += ["", f"# {summary(inspect.getdoc(kind) or '')}", f"[{section}]"]
        for one in settable(section, kind):
            lines += textwrap.wrap(
                f"{one.meaning}", 96, initial_indent="# ", subsequent_indent="# "
            )
            lines.append(f"#{one.name} = {toml_value(ast.literal_eval(one.default))}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Setting:
    """One setting, as written in its class."""

    name: str
    type: str
    default: str
    meaning: str


def sections() -> dict[str, type]:
    """Return the name of each section and its class, in order."""
    hints = get_type_hints(settings.Settings)
    return {field.name: hints[field.name] for field in fields(settings.Settings)}


def settable(section: str, kind: type) -> Iterator[Setting]:
    """Yield the settings of a section that a file may set."""
    fixed = settings.FIXED.get(section, frozenset())
    return (one for one in settings_of(kind) if one.name not in fixed)


def settings_of(kind: type) -> Iterator[Setting]:
    """Yield the settings of a section in source order."""
    source = inspect.getsource(kind)
    lines, tree = source.splitlines(), ast.parse(source)
    assert isinstance(tree.body[0], ast.ClassDef)
    for field in tree.body[0].body:
        if isinstance(field, ast.AnnAssign) and field.value:
            if "NamedTable" in ast.unparse(field.annotation):
                continue  # other pages describe these tables
            default = repr(ast.literal_eval(field.value))
            name, annotation = ast.unparse(field.target), ast.unparse(field.annotation)
            yield Setting(name, annotation, default, summary(comment_before(lines, field.lineno)))


def setting_line(one: Setting) -> str:
    """Return one setting with its default and its meaning."""
    return f"- `{one.name} = {toml_value(ast.literal_eval(one.default))}`: {one.meaning}"


def toml_value(value: object) -> str:
    """Return a default value in TOML."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def comment_before(lines: list[str], number: int) -> str:
    """Return the text of the `#:` lines directly before a line; empty without any."""
    texts: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.lstrip().startswith("#:"):
            break
        texts.insert(0, line.lstrip().removeprefix("#:"))
    return " ".join(" ".join(texts).split())


def load_everything() -> None:
    """Import every module of the product, so that every error class is known."""
    for _ in modules():
        pass


def summary(text: str) -> str:
    """Return a docstring as paragraphs, without sources."""
    return re.sub(r"\s*(Source: )?\b[A-Z]-\d[^.]*\.", "", " ".join(text.split()))


def duration(seconds: int) -> str:
    """Return a duration in words."""
    for size, word in ((86400, "days"), (60, "minutes")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {word}"
    return f"{seconds} s"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]


def page(title: str, *lines: str) -> str:
    """Return a page with its title and a note that the page is generated."""
    return "\n".join([WRITTEN, f"# {title}", "", *lines]) + "\n"
