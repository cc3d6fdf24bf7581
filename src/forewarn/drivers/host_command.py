"""A command of the configuration that does something to a host, such as reboot it.

That it runs at most once is up to the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.errors import PeerError
from forewarn.programs import ProgramFailed, ProgramLimits, program_output
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommandFailed(PeerError):
    """A command of the configuration that failed."""

    code = "command-failed"
    message = "{setting} of host {host} {problem}."
    advice = "Look at the host; retry the operation where the command has not done its work."


@value
class HostCommand:
    """A command, and how long it may take."""

    #: The setting it comes from.
    setting: str
    words: tuple[str, ...]
    timeout_s: int

    def run(self, host: str, facts: Mapping[str, str]) -> None:
        """Run it to its end; `{host}` and the names of the facts are filled in.

        Raises:
            CommandFailed: it cannot be run, has failed or took too long.
        """
        words = [_filled(word, {"host": host, **facts}) for word in self.words]
        limits = ProgramLimits(self.timeout_s)
        try:
            program_output(words, b"", limits)
        except ProgramFailed as error:
            raise self.failed(host, f"failed: {str(error).removesuffix('.')}") from error

    def failed(self, host: str, problem: str) -> CommandFailed:
        """Return the error for it."""
        return CommandFailed(setting=self.setting, host=host, problem=problem)


def _filled(word: str, facts: Mapping[str, str]) -> str:
    for name, fact in facts.items():
        word = word.replace(f"{{{name}}}", fact)
    return word
