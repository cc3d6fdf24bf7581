"""Writes the reference page of the command line from its parsers.

The parser of a command contains its description.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from forewarn import exit_codes
from forewarn.cli.main import NOUNS, parser_for
from tools.docs.reference import page, table

Actions = list[argparse.Action]
Row = tuple[str, str]
#: Number of commands from which a common option is explained only once.
SHARED_BY = 3


@dataclass(frozen=True)
class Command:
    """One command with its purpose and arguments."""

    words: str
    purpose: str
    arguments: Actions


def cli_page() -> str:
    """Return every command with its arguments, grouped by its first word."""
    root = parser_for("*")
    common = own_arguments(root)
    known = {option for action in common for option in action.option_strings}
    lines = [
        "Every command, as `forewarn COMMAND --help` prints it.",
        "The lists omit the word `forewarn`.",
        "Within a section, the first command that takes an argument or option explains it.",
        "Those that talk to a service find it by `--server`, or by `FOREWARN_SERVER`.",
        "What they answer is JSON with `--json`.",
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
        for each in commands_of(root, "")
    ]
    counts = Counter(argument_row(action) for _, own in commands for action in own)
    often = {
        row[0]: row for row, count in reversed(counts.most_common()) if count >= SHARED_BY
    }  # use the most frequent meaning of an option
    shared = [row for row in often.values() if row[0].startswith("`-")]
    lines += ["", "## Options of several commands", ""]
    lines += table(("option", "meaning"), sorted(shared))
    noun, shown = "", dict[str, set[Row]]()  # the arguments of each command above
    for command, own in commands:
        first = command.words.split()[0]
        if first != noun:
            noun = first
            purpose = NOUNS[noun][1]
            lines += ["", f"## {noun}", ""]
            lines += [] if command.words == noun else [sentence(purpose), ""]
        lines += command_lines(command, own, shared, shown)
        shown[command.words] = {argument_row(action) for action in own}
    return page("Commands", *lines)


def command_lines(
    command: Command, own: Actions, shared: Collection[Row], shown: Mapping[str, set[Row]]
) -> Iterator[str]:
    """Yield a command with the arguments that neither `shared` nor an earlier command explains."""
    rows = [argument_row(action) for action in own]
    earlier = max(
        (words for words, theirs in shown.items() if theirs <= set(rows)),
        key=lambda words: len(shown[words]),
        default="",
    )
    if earlier and len(shown[earlier]) >= SHARED_BY:
        also = f" Takes the options of `{earlier}`"
        rows = [row for row in rows if row not in shown[earlier]]
    else:
        also = ""
    noun = command.words.split()[0]
    above = {row for words, theirs in shown.items() if words.split()[0] == noun for row in theirs}
    names = [option_name(row) for row in rows if row in shared or (row in above and is_option(row))]
    if names:
        also += ", and `" if also else " Also takes `"
        also += "`, `".join(names) + "`"
    also += "." if also else ""
    yield f"- `{usage(command.words, own)}`: {sentence(command.purpose)}{also}"
    for row in rows:
        if row not in shared and row not in above and (row[1] or is_option(row)):
            yield f"  - {row[0]}: {row[1]}".rstrip(": ")


def is_option(row: Row) -> bool:
    """Return whether a row explains an option, not a positional argument."""
    return row[0].startswith("`-")


def option_name(row: Row) -> str:
    """Return the name of the option that a row explains."""
    return row[0].split()[0].strip("`,")


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
                inner.append((child, f"{path} {name}".strip(), purposes.get(name, "")))
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


def argument_row(action: argparse.Action) -> Row:
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
