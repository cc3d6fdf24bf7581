"""Creation of an emulator, with its own routes in the operator API."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn_emulator.emulator import Emulator
from forewarn_emulator.options import Options


def new_emulator(options: Options) -> Emulator:
    """Create an emulator without starting it.

    Raises:
        ClockSpeedInvalid: the speed is invalid.
    """
    return Emulator(options, _routes)


def _routes(emulator: Emulator) -> Sequence[object]:
    from forewarn_emulator import routes  # noqa: PLC0415
    from forewarn_server.api.routes import routes_of  # noqa: PLC0415 - after VMs are served

    return routes_of(routes, emulator)
