"""A configured command that acts on a host, for example a reboot.

The driver ensures that a command runs at most once.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from forewarn_base.errors import PeerError
from forewarn_base.programs import ProgramFailed, ProgramLimits, program_output
from forewarn_base.validation.fields import Text, ValidationFailed
from forewarn_base.validation.forms import ListOf
from forewarn_base.values import value

#: Maximum words of a command.
WORDS_MAX = 100


class CommandFailed(PeerError):
    """A configured command failed."""

    code = "command-failed"
    message = "{setting} of host {host} {problem}."
    advice = "Check the host; retry the operation if the command has not done its work."


class _CommandWords(ListOf):
    """A program and its arguments; the program must be executable."""

    def read(self, value: object, where: str) -> tuple[object, ...]:
        """Return the words of the command."""
        words = super().read(value, where)
        if shutil.which(str(words[0])) is None:
            problem = f"names {words[0]!r}, which is not an executable program"
            raise ValidationFailed(where=where, problem=problem)
        return words


#: A command in the options of a driver.
COMMAND_TYPE = _CommandWords(Text(4096), WORDS_MAX, 1)


@value
class HostCommand:
    """A command, and its time limit."""

    #: Name of the setting with the command.
    setting: str
    words: tuple[str, ...]
    timeout_s: int

    def run(self, host: str, facts: Mapping[str, str]) -> None:
        """Run the command to its end, with `{host}` and the named facts replaced.

        Raises:
            CommandFailed: the command cannot be run, has failed or took too long.
        """
        words = [_fill(word, {"host": host, **facts}) for word in self.words]
        limits = ProgramLimits(self.timeout_s)
        try:
            program_output(words, b"", limits)
        except ProgramFailed as error:
            raise self.failed(host, f"failed: {str(error).removesuffix('.')}") from error

    def failed(self, host: str, problem: str) -> CommandFailed:
        """Return an error for this command on a host."""
        return CommandFailed(setting=self.setting, host=host, problem=problem)


def _fill(word: str, facts: Mapping[str, str]) -> str:
    for name, fact in facts.items():
        word = word.replace(f"{{{name}}}", fact)
    return word
