"""A polling loop after the published Python sample: urllib only, no part of Forewarn.

Polls until an event naming this machine is there, approves it, polls until it is gone, prints
one line of JSON for each document that differs from the one before.
"""

import json
import sys
import time
import urllib.request
from typing import Any

URL, NAME = sys.argv[1], sys.argv[2]
HEADERS = {"Metadata": "true"}
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get_scheduled_events() -> dict[str, Any]:
    """Return the document."""
    request = urllib.request.Request(URL, headers=HEADERS)
    with opener.open(request, timeout=120) as answer:
        document: dict[str, Any] = json.loads(answer.read())
        return document


def confirm_scheduled_event(event_id: str) -> None:
    """Approve an event."""
    body = json.dumps({"StartRequests": [{"EventId": event_id}]})
    request = urllib.request.Request(URL, data=body.encode(), headers=HEADERS)
    with opener.open(request, timeout=120) as answer:
        assert answer.status == 200
        answer.read()


last_document_incarnation = None
approved = set()
seen = False
while True:
    payload = get_scheduled_events()
    if payload["DocumentIncarnation"] != last_document_incarnation:
        last_document_incarnation = payload["DocumentIncarnation"]
        print(json.dumps(payload), flush=True)
        for event in payload["Events"]:
            if NAME in event["Resources"]:
                seen = True
                if event["EventStatus"] == "Scheduled" and event["EventId"] not in approved:
                    approved.add(event["EventId"])
                    confirm_scheduled_event(event["EventId"])
        if seen and not payload["Events"]:
            break
    time.sleep(0.25)
