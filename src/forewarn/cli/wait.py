"""`forewarn wait`: wait until work has reached a state."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from forewarn.cli.api_client import ApiClient, client_of, local_now_ms, part
from forewarn.cli.application import noun_app
from forewarn.cli.output import note, print_structured
from forewarn.cli.parameters import COMMON, Seconds, ServerOptions
from forewarn.exit_codes import OK, REFUSED, TIMED_OUT

#: States after which work does not change.
_ENDED = frozenset({"succeeded", "failed", "cancelled", "done"})
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
    reached = _state(client, kind, id_)
    until_ms = local_now_ms() + int(timeout_s * 1000) if timeout_s else 0
    if not _is_over(reached, state):
        for entry in client.lines("/v1/watch", after=after, until_ms=until_ms):
            if entry is not None and "end" in entry:
                note(f"the server ended the stream: {entry['end']}")
                break
            reached = _state(client, kind, id_)
            if _is_over(reached, state):
                break
    if common.structured:
        print_structured(common, {"id": id_, "state": reached})
    else:
        note(f"{id_} is {reached}")
    if not _is_over(reached, state):
        return TIMED_OUT
    return OK if state in {reached, "ended"} else REFUSED


def _state(client: ApiClient, kind: str, name: str) -> str:
    state: str = client.get(f"/v1/{kind}s/{part(name)}")[kind]["state"]
    return state


def _is_over(reached: str, wanted: str) -> bool:
    """Whether work has the wanted state, or never will."""
    return reached == wanted or reached in _ENDED
