"""Transcripts: a small language of commands, and the lines the world answers with.

The commands are in `commands.py`. Nothing may be drawn from chance here. See
tests/transcripts/README.md.
"""

from collections.abc import Iterator
from contextlib import closing

from forewarn_base.errors import CallerError
from forewarn_base.values import value
from tests.simulator.transcripts.commands import CommandRunner
from tests.simulator.world.crash_points import Violation

#: The line between the commands of a block and what is expected of them.
MARK = "----"
BLOCKS_MAX = 1000


class TranscriptInvalid(Exception):
    """A transcript that cannot be read or done; tests/transcripts/README.md has the commands."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        """Say where, and what; a problem that ends in a question needs no stop."""
        stop = "" if problem.endswith(("?", ".")) else "."
        super().__init__(f"{name}:{line}: {problem}{stop}")


@value
class Block:
    """Some commands and the lines expected after them."""

    #: Number of the first command's line, from 1.
    line: int
    commands: tuple[str, ...]
    expected: tuple[str, ...]


@value
class Transcript:
    """One story."""

    title: str
    blocks: tuple[Block, ...]
    #: What its errors call it: the file it is in.
    name: str = "transcript"

    @property
    def expects(self) -> bool:
        """Whether it says anywhere what is expected; else it only asks what happens."""
        return any(block.expected for block in self.blocks)


@value
class TranscriptResult:
    """What a block came to."""

    block: Block
    lines: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether it is what was expected."""
        return self.block.expected == self.lines


def parse(text: str, name: str = "transcript") -> Transcript:
    """Read a transcript.

    Args:
        text: all of it.
        name: what its errors call it.

    Raises:
        TranscriptInvalid: it has no title, or too many blocks.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# "):
        raise TranscriptInvalid(name, 1, "the first line must be a title, `# …`")
    blocks: list[Block] = []
    start = 1
    for number, line in enumerate([*lines[1:], ""], start=1):
        if line.strip():
            continue
        if number > start:
            blocks.append(_block(lines[start:number], start + 1))
        start = number + 1
    if len(blocks) > BLOCKS_MAX:
        raise TranscriptInvalid(name, 1, f"more than {BLOCKS_MAX} blocks")
    return Transcript(lines[0][2:].strip(), tuple(blocks), name)


def play(transcript: Transcript) -> Iterator[TranscriptResult]:
    """Do a transcript on a deployment of its own, block by block.

    Raises:
        TranscriptInvalid: a command is not one.
        Violation: the product broke a promise; it names the line of the last command.
    """
    actor = CommandRunner()
    with closing(actor.deployment.disk), actor.deployment.captured_logs():
        for block in transcript.blocks:
            yield TranscriptResult(block, tuple(_done(actor, transcript, block)))


def rewritten(transcript: Transcript, results: list[TranscriptResult]) -> str:
    """The transcript's text with what was printed in place of what was expected."""
    parts = []
    for each in results:
        lines = [*each.block.commands]
        if each.lines:
            lines += [MARK, *each.lines]
        parts.append("\n".join(lines))
    return f"# {transcript.title}\n" + "\n\n".join(parts) + "\n"


def _done(actor: CommandRunner, transcript: Transcript, block: Block) -> list[str]:
    """Do the commands of a block; return their output."""
    lines: list[str] = []
    line = block.line
    try:
        for line, command in enumerate(block.commands, start=block.line):  # noqa: B007 - for errors
            if not command.startswith("#"):
                lines += actor.do(command)
        return lines + actor.changes()
    except (ValueError, CallerError) as error:
        raise TranscriptInvalid(transcript.name, line, str(error)) from error
    except Violation as violation:
        violation.line = line
        raise


def _block(lines: list[str], first: int) -> Block:
    if MARK in lines:
        at = lines.index(MARK)
        return Block(first, tuple(lines[:at]), tuple(lines[at + 1 :]))
    return Block(first, tuple(lines), ())
