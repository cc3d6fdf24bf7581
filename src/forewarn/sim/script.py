"""Transcripts: a small language of commands, and the lines the world answers with.

The commands are in `commands.py`. Nothing may be drawn from chance here. See
docs/reference/transcripts.md.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forewarn.errors import CallerError
from forewarn.sim.commands import Actor

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "----"
"""The line between the commands of a block and what is expected of them."""
BLOCKS_MAX = 1000


class ScriptWrong(CallerError):
    """A transcript that cannot be read or done."""

    code = "script-wrong"
    message = "Line {line} of the transcript: {problem}."
    advice = "See docs/reference/transcripts.md for the commands there are."


@dataclass(frozen=True, slots=True)
class Block:
    """Some commands and the lines expected after them."""

    #: Number of the first command's line, from 1.
    line: int
    commands: tuple[str, ...]
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One story."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What a block came to."""

    block: Block
    lines: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether it is what was expected."""
        return self.block.expected == self.lines


def parse(text: str) -> Transcript:
    """Read a transcript.

    Raises:
        ScriptWrong: it has no title, or too many blocks.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# "):
        raise ScriptWrong(line=1, problem="the first line must be a title, `# …`")
    blocks: list[Block] = []
    start = 1
    for number, line in enumerate([*lines[1:], ""], start=1):
        if line.strip():
            continue
        if number > start:
            blocks.append(_block(lines[start:number], start + 1))
        start = number + 1
    if len(blocks) > BLOCKS_MAX:
        raise ScriptWrong(line=1, problem=f"more than {BLOCKS_MAX} blocks")
    return Transcript(lines[0][2:].strip(), tuple(blocks))


def play(transcript: Transcript) -> Iterator[Told]:
    """Do a transcript on a stage of its own, block by block.

    Raises:
        ScriptWrong: a command is not one.
        Violation: the product broke a promise.
    """
    actor = Actor()
    with closing(actor.stage.disk), actor.stage.listening():
        for block in transcript.blocks:
            lines: list[str] = []
            for number, command in enumerate(block.commands, start=block.line):
                if command.startswith("#"):
                    continue
                try:
                    lines += actor.do(command)
                except (ValueError, LookupError) as error:
                    raise ScriptWrong(line=number, problem=f"{command!r}: {error}") from error
            yield Told(block, (*lines, *actor.changes()))


def rewritten(transcript: Transcript, told: list[Told]) -> str:
    """The transcript's text with what was told in place of what was expected."""
    parts = []
    for each in told:
        lines = [*each.block.commands]
        if each.lines:
            lines += [MARK, *each.lines]
        parts.append("\n".join(lines))
    return f"# {transcript.title}\n" + "\n\n".join(parts) + "\n"


def _block(lines: list[str], first: int) -> Block:
    if MARK in lines:
        at = lines.index(MARK)
        return Block(first, tuple(lines[:at]), tuple(lines[at + 1 :]))
    return Block(first, tuple(lines), ())
