"""Webhook: posts the signed event to a URL, and retries until the receiver accepts the event.

The body contains the `phase`. The signature is HMAC-SHA256 over `TIMESTAMP.BODY`, a common format
of payment services.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import sys

from forewarn.agent.preparations.http_call import CallFailed, call, secret
from forewarn.agent.preparations.wait_until import pause, seconds_left
from forewarn_base.clock import SystemClock
from forewarn_base.urls import shown_url

PAUSE_S = 1.0  # pause after the first try, doubled after each
PAUSE_S_MAX = 30.0
PERMANENT = (400, 401, 403, 404, 405, 413, 422)


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Post the hook's input."""
    return post(settings, hook, kind="prepare")


def recover(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Post the hook's input, with the `phase` recover or cancel."""
    return post(settings, hook, kind=str(hook.get("phase", "recover")))


def post(settings: dict[str, object], form: dict[str, object], *, kind: str) -> str:
    """Post a form until the answer is 2xx; stop at a permanent refusal, or at the deadline.

    Raises:
        CallFailed: the receiver did not accept the form.
    """
    url = str(settings["url"])
    tries = int(str(settings.get("tries", 0))) or sys.maxsize
    reason = "never tried"
    for attempt in itertools.count(1):
        headers = _headers(settings, form, kind=kind)
        try:
            ca_file = str(settings.get("ca_file") or "")
            response = call("POST", url, form=form, headers=headers, ca_file=ca_file)
        except CallFailed as error:
            reason = str(error.facts["reason"])
        else:
            if 200 <= response.status < 300:
                return f"accepted with status {response.status}, try {attempt}"
            reason = f"status {response.status}"
            if response.status in PERMANENT:
                break
        pause_s = min(PAUSE_S * 2 ** (attempt - 1), PAUSE_S_MAX)
        if attempt >= tries or pause_s > seconds_left():
            break
        pause(pause_s)
    # Omit the path of a webhook URL, because the path is often a secret.
    raise CallFailed(method="POST", url=shown_url(url), reason=reason)


def signature(key: str, timestamp: str, *, body: bytes) -> str:
    """Return the hexadecimal HMAC-SHA256 of a timestamp and a body."""
    signed = timestamp.encode() + b"." + body
    return hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()


def _headers(settings: dict[str, object], form: dict[str, object], *, kind: str) -> dict[str, str]:
    extra = settings.get("headers", {})
    assert isinstance(extra, dict)
    headers = {"X-Forewarn-Kind": kind, **{str(k): str(v) for k, v in extra.items()}}
    if settings.get("cloudevents"):
        headers["Content-Type"] = "application/cloudevents+json; charset=utf-8"
    key = secret(settings.get("secret_file"))
    if key:
        timestamp = str(SystemClock().now_ms() // 1000)
        headers["X-Forewarn-Timestamp"] = timestamp
        body = json.dumps(form).encode()
        headers["X-Forewarn-Signature"] = f"sha256={signature(key, timestamp, body=body)}"
    return headers
