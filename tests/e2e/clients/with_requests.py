"""A polling loop on requests, plain calls and a session by turns; no part of Forewarn.

Prints each document that differs from the one before.
"""

import itertools
import sys
import time
from typing import Any

import requests

URL, NAME = sys.argv[1], sys.argv[2]
HEADERS = {"Metadata": "True"}

session = requests.Session()
session.trust_env = False
ways: list[Any] = [requests, session]  # both have get and post
last = ""
approved = set()
seen = False
for way in itertools.cycle(ways):
    answer = way.get(URL, headers=HEADERS, timeout=120)
    answer.raise_for_status()
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    if answer.text != last:
        last = answer.text
        print(last, flush=True)
    events = answer.json()["Events"]
    if seen and not events:
        break
    for event in events:
        seen = seen or NAME in event["Resources"]
        if event["EventStatus"] == "Scheduled" and event["EventId"] not in approved:
            approved.add(event["EventId"])
            body = {"StartRequests": [{"EventId": event["EventId"]}]}
            as_form = str(body).replace("'", '"')
            assert way.post(URL, headers=HEADERS, json=body, timeout=120).text == ""
            assert way.post(URL, headers=HEADERS, data=as_form, timeout=120).status_code == 200
            assert way.get(URL, timeout=120).status_code == 400
    time.sleep(0.25)
