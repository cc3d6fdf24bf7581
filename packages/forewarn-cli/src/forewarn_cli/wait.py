"""`forewarn wait`: wait until work has reached a state."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from forewarn_base.exit_codes import OK, REFUSED, TIMED_OUT
from forewarn_cli.maintenance_output import line_of
from forewarn_server.cli.api_client import Answer, client_of, local_now_ms, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import note, print_structured
from forewarn_server.cli.parameters import COMMON, Seconds, ServerOptions
from forewarn_server.cli.progress import progress_bar

#: States after which work does not change.
_ENDED = frozenset({"succeeded", "failed", "cancelled", "done"})
#: Stands behind the last line of a stream that was read until the timeout.
_TIMEOUT_LINE = {"end": "timeout"}
wait = noun_app("wait")


@wait.default
def _wait(
    id_: Annotated[str, Parameter(name="ID", help="operation (op-12) or maintenance (m-12)")],
    /,
    *,
    state: Annotated[
        Literal["announced", "running", "paused", "succeeded", "failed", "done", "ended"],
        Parameter(name="--for", help="the state (default: ended, in any way)"),
    ] = "ended",
    timeout_s: Annotated[
        Seconds, Parameter(name="--timeout", metavar="SECONDS", help="stop waiting after this time")
    ] = 0.0,
    common: ServerOptions = COMMON,
) -> int:
    """Wait until work has a state; exit status 1 if it ends in another state."""
    client = client_of(common)
    kind = "maintenance" if id_.lower().startswith("m-") else "operation"
    after = client.history_end()
    path = f"/v1/{kind}s/{part(id_)}"
    answer = client.get(path)
    until_ms = local_now_ms() + int(timeout_s * 1000) if timeout_s else 0
    with progress_bar(f"waiting for {id_}") as report:
        stream = client.lines("/v1/watch", after=after, until_ms=until_ms)
        while not _is_over(answer[kind]["state"], state):
            report(*_progress(answer, kind, client.now_ms))
            entry = next(stream, _TIMEOUT_LINE)
            if entry is not None and "end" in entry:
                if entry is not _TIMEOUT_LINE:
                    note(f"the server ended the stream: {entry['end']}")
                break
            answer = client.get(path)
    reached = answer[kind]["state"]
    if common.structured:
        print_structured(common, {"id": id_, "state": reached})
    else:
        note(f"{id_} is {reached}")
    if not _is_over(reached, state):
        return TIMED_OUT
    return OK if state in {reached, "ended"} else REFUSED


def _progress(answer: Answer, kind: str, now_ms: int) -> tuple[str, int | None, int | None]:
    """Return what to show of work: a sentence, its hosts that are over, and all its hosts."""
    work = answer[kind]
    if kind == "maintenance":
        return line_of(answer, now_ms), work["done"] + work["failed"], work["hosts"]
    return f"{work['id']} is {work['state']}", None, None


def _is_over(reached: str, wanted: str) -> bool:
    """Whether work has the wanted state, or never will."""
    return reached == wanted or reached in _ENDED
