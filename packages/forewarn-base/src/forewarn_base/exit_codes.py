"""Exit statuses of every command, documented in docs/reference/cli.md."""

from __future__ import annotations

#: Success.
OK = 0
#: The server refused the command, the awaited work failed or was cancelled, or this machine cannot
#: run the command now.
REFUSED = 1
#: The command line is wrong or names an unusable object; `argparse` uses the same number.
USAGE = 2
#: The server did not answer, or is not a Forewarn server.
UNREACHABLE = 3
#: The awaited event did not happen within `--timeout`.
TIMED_OUT = 4
#: Ctrl-C: 128 and the number of SIGINT, as shells count.
INTERRUPTED = 130
#: The reader of the output closed the pipe: 128 and the number of SIGPIPE.
PIPE_CLOSED = 141

#: The meaning of each status, for the reference page.
MEANINGS = {
    OK: "done",
    REFUSED: "the server refused, the awaited work failed or was cancelled, or the command cannot"
    " run on this machine now",
    USAGE: "the command line is wrong, or names a file, an address or a value that cannot be used",
    UNREACHABLE: "the server cannot be reached, or is not a Forewarn server; for"
    " `watch --count`: the server stopped before N entries arrived",
    TIMED_OUT: "what `--wait` waited for did not happen within `--timeout`",
    INTERRUPTED: "interrupted (Ctrl-C)",
    PIPE_CLOSED: "the reader of the output closed it",
}
