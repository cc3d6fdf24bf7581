"""The route by which the far sides of drivers report; the driver's signature is the token.

What a report means is decided by the driver, and then by the core.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.drivers import Reported
from forewarn.errors import CallerError
from forewarn.validation.json_reader import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.drivers import Driver

#: The header that says which driver a report is for.
HEADER = "forewarn-driver"


class ReportUnwanted(CallerError):
    """A report for a driver that takes none."""

    code = "driver-report-unwanted"
    status = 403
    message = "No driver here takes this report."
    advice = "Name a driver of kind webhook in the header Forewarn-Driver."


def routes(drivers: Mapping[str, Driver]) -> tuple[Route, ...]:
    """Return the route of reports; which drivers there are may change."""
    return (
        Route(
            method="POST",
            path="/v1/driver-reports",
            name="report_progress",
            summary="Report how far a task is, signed by the far side of a driver.",
            act=partial(_take, drivers),
            takes=(JSON,),
            answer={"type": "object"},
        ),
    )


async def _take(drivers: Mapping[str, Driver], call: ApiCall) -> ApiResponse:
    driver: object = drivers.get(call.headers.get(HEADER, ""))
    if not isinstance(driver, Reported):
        raise ReportUnwanted
    await asyncio.to_thread(driver.take_report, call.headers, call.body)
    return ApiResponse({})
