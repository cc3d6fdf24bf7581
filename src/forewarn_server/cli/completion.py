"""`forewarn completion`: print a shell's completion script.

The script is small: at each key press it runs `forewarn __complete`, which prints the words that
fit. So it stays valid over an upgrade, and completes the names of the fleet's objects.
"""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from forewarn_base.exit_codes import OK
from forewarn_server.cli.application import noun_app

completion = noun_app("completion")

#: `forewarn __complete WORD...` prints one word on a line, with a tab and its help.
_SCRIPTS = {
    "bash": """\
_forewarn() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o filenames -F _forewarn forewarn
""",
    "zsh": """\
#compdef forewarn
_forewarn() {
    local line
    local -a shown
    while IFS= read -r line; do
        shown+=("${${line%%$'\\t'*}//:/\\:}:${line#*$'\\t'}")
    done < <($words[1] __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe forewarn shown
}
compdef _forewarn forewarn
""",
    "fish": """\
function __forewarn_complete
    forewarn __complete (commandline -pco)[2..] (commandline -ct) 2>/dev/null
end
complete -c forewarn -f -a '(__forewarn_complete)'
""",
}


@completion.default
def _completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        Parameter(
            name="SHELL",
            help="bash, zsh or fish; evaluate the output when the shell starts; for fish, put it"
            " into ~/.config/fish/completions/forewarn.fish",
        ),
    ],
    /,
) -> int:
    """Print a completion script for a shell."""
    print(_SCRIPTS[shell], end="")
    return OK
