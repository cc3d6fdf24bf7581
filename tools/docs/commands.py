"""Writes the reference page of the command line from its parsers.

The parser of a command contains its description.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from forewarn import exit_codes
from forewarn.cli.main import NOUNS, parser_for
from tools.docs.reference import page, table

Actions = list[argparse.Action]
#: Number of commands from which a common option is explained only once.
SHARED_BY = 3


@dataclass(frozen=True)
class Command:
    """One command with its purpose and arguments."""

    words: str
    purpose: str
    arguments: Actions


def cli_page() -> str:
    """Return every command with its arguments."""
    root = parser_for("*")
    common = own_arguments(root)
    known = {option for action in common for option in action.option_strings}
    lines = [
        "Every command, as `forewarn COMMAND --help` prints it.",
        "Those that talk to a service find it by `--server`, or by `FOREWARN_SERVER`.",
        "What they answer is JSON with `--json`.",
        "",
        *(f"- `forewarn {name}`: {purpose}" for name, (_, purpose) in NOUNS.items()),
        "",
        "## Options of every command",
        "",
        *table(("option", "meaning"), (argument_row(action) for action in common)),
        "",
        "## Exit statuses",
        "",
        *table(
            ("status", "meaning"), ((f"`{n}`", text) for n, text in exit_codes.MEANINGS.items())
        ),
    ]
    commands = [
        (each, [one for one in each.arguments if not known.intersection(one.option_strings)])
        for each in commands_of(root, "forewarn")
    ]
    counts = Counter(argument_row(action) for _, own in commands for action in own)
    often = {
        row[0]: row for row, count in reversed(counts.most_common()) if count >= SHARED_BY
    }  # use the most frequent meaning of an option
    shared = [row for row in often.values() if row[0].startswith("`-")]
    lines += ["", "## Options of several commands", ""]
    lines += table(("option", "meaning"), sorted(shared))
    for command, own in commands:
        lines += ["", f"## `{usage(command.words, own)}`", "", sentence(command.purpose)]
        rows = [argument_row(action) for action in own]
        if also := "`, `".join(row[0].split()[0].strip("`") for row in rows if row in shared):
            lines += ["", f"Also takes `{also}`."]
        if told := [
            row for row in rows if row not in shared and (row[1] or row[0].startswith("`-"))
        ]:
            lines += ["", *(f"- {name}: {meaning}".rstrip(": ") for name, meaning in told)]
    return page("Commands", *lines)


def commands_of(root: argparse.ArgumentParser, words: str) -> Iterator[Command]:
    """Yield every command in the order of the help."""
    waiting = [(root, words, "")]
    while waiting:
        parser, path, purpose = waiting.pop(0)
        below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]  # noqa: SLF001
        if not below:
            yield Command(path, parser.description or purpose, own_arguments(parser))
        inner = []
        for branch in below:
            purposes = {one.dest: one.help or "" for one in branch._choices_actions}  # noqa: SLF001
            for name, child in branch.choices.items():
                inner.append((child, f"{path} {name}", purposes.get(name, "")))
        waiting[:0] = inner


def own_arguments(parser: argparse.ArgumentParser) -> Actions:
    """Return a parser's arguments, without help and sub-commands."""
    hidden = (argparse._HelpAction, argparse._SubParsersAction)  # noqa: SLF001
    shown = (one for one in parser._actions if not isinstance(one, hidden))  # noqa: SLF001
    return [one for one in shown if one.help != argparse.SUPPRESS]


def usage(words: str, arguments: Actions) -> str:
    """Return a command with its required arguments; `[options]` stands for other options."""
    parts = [words]
    optional = [one for one in arguments if one.option_strings and not one.required]
    parts += [
        with_value(one.option_strings[-1], one)
        for one in arguments
        if one.required and one.option_strings
    ]
    parts += ["[options]"] if optional else []
    for one in arguments:
        if not one.option_strings:
            word = value_of(one) + (" …" if one.nargs in {"*", "+"} else "")
            parts.append(f"[{word}]" if one.nargs in {"?", "*"} else word)
    return " ".join(parts)


def value_of(action: argparse.Action) -> str:
    """Return the placeholder of an argument's value; empty for a switch."""
    if action.nargs == 0:
        return ""
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices:
        return "|".join(str(choice) for choice in action.choices)
    return action.dest.upper().replace("-", "_")


def with_value(option: str, action: argparse.Action) -> str:
    """Return an option with its value, in brackets if the value is optional."""
    value = value_of(action)
    if not value:
        return option
    return f"{option} [{value}]" if action.nargs == "?" else f"{option} {value}"


def argument_row(action: argparse.Action) -> tuple[str, str]:
    """Return one row of a table of arguments."""
    names = action.option_strings or [value_of(action)]
    shown = ", ".join(names)
    if action.option_strings:
        shown = with_value(shown, action)
    meaning = (action.help or "") % vars(action) if "%(" in (action.help or "") else action.help
    return f"`{shown}`", meaning or ""


def sentence(text: str) -> str:
    """Return a help line as a sentence."""
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
