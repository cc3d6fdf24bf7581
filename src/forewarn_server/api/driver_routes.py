"""The route for reports of webhook drivers' services; a signature authenticates each report.

The driver interprets the report, and the core acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from forewarn_base.errors import CallerError
from forewarn_base.validation.json_reader import JSON
from forewarn_core.access.roles import Permission
from forewarn_drivers import Driver, Reported
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import TABLE

#: Header with the name of the driver that receives the report.
HEADER = "forewarn-driver"


class ReportUnwanted(CallerError):
    """No driver accepts the report."""

    code = "driver-report-unwanted"
    status = 403
    message = "No driver accepts this report."
    advice = "Name a driver of kind webhook in the header Forewarn-Driver."


@Route("POST /v1/driver-reports", Permission.PUBLIC, takes=(JSON,), answer=TABLE)
async def report_progress(drivers: Mapping[str, Driver], call: ApiCall) -> ApiResponse:
    """Report the progress of a task, signed by the driver's service."""
    driver: object = drivers.get(call.headers.get(HEADER, ""))
    if not isinstance(driver, Reported):
        raise ReportUnwanted
    await asyncio.to_thread(driver.take_report, call.headers, call.body)
    return ApiResponse({})
