"""Signatures of requests and reports, which protect sender, time and direction.

`driver.py` sends the requests.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from forewarn_base.errors import CallerError

#: Maximum difference between a signature's time and now, in seconds, the same as for Slack and
#: Stripe.
AGE_S_MAX = 300
#: Minimum length of a secret, in bytes.
SECRET_BYTES_MIN = 16
#: Direction of a message, so that an attacker cannot replay a request as a report.
REQUEST, REPORT = "request", "report"
DRIVER_HEADER = "forewarn-driver"
TIME_HEADER = "forewarn-timestamp"
SIGNATURE_HEADER = "forewarn-signature"


class ReportRefused(CallerError):
    """A report has a wrong or old signature, or was received before."""

    code = "driver-report-refused"
    status = 403
    message = "The report for driver {driver} is refused: {reason}."
    advice = "Sign the report again, with the current time; see 'Drivers' in the documentation."


def signature(secret: bytes, way: str, driver: str, *, time_s: int, body: bytes) -> str:
    """Return the signature of a message."""
    head = f"forewarn-{way}:{driver}:{time_s}:".encode()
    return "sha256=" + hmac.new(secret, head + body, hashlib.sha256).hexdigest()


def signed(secret: bytes, way: str, driver: str, *, time_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a message."""
    return {
        DRIVER_HEADER: driver,
        TIME_HEADER: str(time_s),
        SIGNATURE_HEADER: signature(secret, way, driver, time_s=time_s, body=body),
    }


def check_report(
    secret: bytes, driver: str, headers: Mapping[str, str], *, body: bytes, now_s: int
) -> int:
    """Check the sender of a report; return the time of the signature, seconds since the epoch.

    Raises:
        ReportRefused: the signature is missing, wrong or too old.
    """
    timestamp = headers.get(TIME_HEADER, "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise ReportRefused(driver=driver, reason=f"{TIME_HEADER} is not a time in seconds")
    right = signature(secret, REPORT, driver, time_s=int(timestamp), body=body)
    if not hmac.compare_digest(right.encode(), headers.get(SIGNATURE_HEADER, "").encode()):
        raise ReportRefused(driver=driver, reason=f"{SIGNATURE_HEADER} is wrong")
    if abs(now_s - int(timestamp)) > AGE_S_MAX:
        raise ReportRefused(
            driver=driver, reason=f"the signature's time differs by more than {AGE_S_MAX} s"
        )
    return int(timestamp)
