"""APIs beside the operator API, each with an address of its own, such as Azure's.

An API is an entry point of the group `forewarn.apis`, a `FurtherApi`. It is loaded only if its
section of the settings has an address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from forewarn_base.extensions import ExtensionGroup
from forewarn_base.settings import Settings
from forewarn_base.values import value
from forewarn_server.api.routes import AnyRoute
from forewarn_server.control.run_loop import ControlLoop
from forewarn_store import Store

APIS = ExtensionGroup("api", {}, {"azure": "forewarn-azure"})


class ServedApi(Protocol):
    """A running API."""

    @property
    def url(self) -> str:
        """Its URL for clients."""

    @property
    def certificate(self) -> str:
        """Path of its certificate file."""

    async def stop(self) -> None:
        """Close it."""


@value
class FurtherApi:
    """An API of a service; the registered object of the entry points `forewarn.apis`."""

    #: Returns its routes, for questions about permissions.
    every_route: Callable[[], Sequence[AnyRoute]]
    #: Raises the error of a setting that would prevent a start, and opens nothing.
    check: Callable[[Settings], None]
    #: Serves the state of a control plane and its store.
    start: Callable[[ControlLoop, Store, Settings], Awaitable[ServedApi]]


def find_api(name: str) -> FurtherApi:
    """Return the API of a name.

    Raises:
        ExtensionMissing: its package is not installed.
        ExtensionUnusable: its package cannot be loaded.
    """
    extension = APIS.find(name)
    assert extension is not None, name  # its settings are Forewarn's
    api = extension.load()
    if not isinstance(api, FurtherApi):
        raise extension.unusable(f"{type(api).__name__} is not a FurtherApi")
    return api
