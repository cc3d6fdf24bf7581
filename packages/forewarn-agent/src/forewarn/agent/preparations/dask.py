"""Dask: retires the workers of this machine: their results move to other workers, then they end.

The scheduler must serve its HTTP API (`distributed.http.scheduler.api`). Source: J-3.
"""

from __future__ import annotations

from forewarn.agent.json_fields import several, words
from forewarn.agent.preparations.http_call import call, expect
from forewarn.agent.preparations.local_address import host_of, is_local
from forewarn.agent.preparations.wait_until import persist, until

ADDRESS = "http://127.0.0.1:8787"


def prepare(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Retire the workers, and wait until the scheduler knows none of them."""
    workers = persist(lambda: _workers(settings))
    if not workers:
        return "no Dask worker runs on this machine"
    until(lambda: _retire_workers(settings), f"{len(workers)} Dask workers are retired")
    return f"retired: {', '.join(workers)}"


def recover(_settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Undo nothing: the machine's service starts new workers."""
    return "the service of the workers starts them again"


def _retire_workers(settings: dict[str, object]) -> bool:
    """Ask for the retirement of the workers that are left; return whether none was left."""
    workers = _workers(settings)
    if workers:
        url = f"{_api(settings)}/retire_workers"
        form = {"workers": workers}
        expect(call("POST", url, form=form), "POST", url=url, statuses=(200,))
    return not workers


def _workers(settings: dict[str, object]) -> list[str]:
    """Return the addresses of the workers in the settings, or else of this machine's workers."""
    url = f"{_api(settings)}/get_workers"
    response = expect(call("GET", url), "GET", url=url, statuses=(200,))
    wanted = words(settings, "workers")
    addresses = []
    for worker in several(response.form(), "workers"):
        address = str(worker.get("address"))
        named = {address, str(worker.get("name"))}
        if named & set(wanted) if wanted else is_local(host_of(address)):
            addresses.append(address)
    return addresses


def _api(settings: dict[str, object]) -> str:
    return f"{str(settings.get('address') or ADDRESS).rstrip('/')}/api/v1"
