"""Plays a transcript, and prints where it differs or breaks a promise.

What its commands do is in `tests.simulator`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from forewarn_base.exit_codes import OK, REFUSED, USAGE
from forewarn_server.cli.output import note, noun
from tests.simulator.transcripts.transcript import Transcript, TranscriptResult, parse, play
from tests.simulator.world.crash_points import Violation

NOTHING = ("nothing",)


def play_file(path: Path) -> int:
    """Play a transcript; the status says whether it came out as expected, no promise broken.

    Raises:
        TranscriptInvalid: a line of it is not a command, or cannot be done.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"{path} cannot be read: {reason}", file=sys.stderr)
        return USAGE
    transcript = parse(text, str(path))
    results: list[TranscriptResult] = []
    broken: Violation | None = None
    print(f"{transcript.title}\n")
    try:
        for each in play(transcript):
            results.append(each)
            _print_result(each, expects=transcript.expects)
    except Violation as violation:
        broken = violation
    differ = [each for each in results if transcript.expects and not each.agrees]
    _print_end(transcript, len(differ), broken)
    return REFUSED if broken or differ else OK


def _print_result(result: TranscriptResult, *, expects: bool) -> None:
    _print_block(result.block.commands, result.lines)
    if expects and not result.agrees:
        print("expected instead:")
        _print_block((), result.block.expected or NOTHING)


def _print_block(commands: Sequence[str], lines: Sequence[str]) -> None:
    for command in commands:
        print(command if command.startswith("#") else f"> {command}")
    for line in lines:
        print(f"  {line}")
    print()


def _print_end(transcript: Transcript, differ: int, broken: Violation | None) -> None:
    """What it all came to; on a broken promise the commands up to the one after which it broke."""
    blocks = len(transcript.blocks)
    if broken is not None:
        block = next(each for each in reversed(transcript.blocks) if each.line <= broken.line)
        done = block.commands[: broken.line - block.line + 1]
        _print_block(done, ())
        note(f"{transcript.name}:{broken.line}: broken promise after `{done[-1]}`: {broken}")
    if differ:
        verb = "differs" if differ == 1 else "differ"
        note(f"{differ} of {blocks} {noun(blocks, 'block')} {verb}")
    elif broken is None:
        outcome = "as expected" if transcript.expects else "played, nothing was expected"
        note(f"{blocks} {noun(blocks, 'block')} {outcome}")
