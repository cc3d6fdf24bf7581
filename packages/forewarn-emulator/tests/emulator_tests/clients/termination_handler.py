"""Polls as OpenShift's termination handler does, which needs a Kubernetes API of its own to run.

It asks for 2024-07-09, takes 200 and 404 (nothing is scheduled for it), and ends after any other
status and any answer that is not JSON. Prints the status of each poll.
"""

import json
import sys
import urllib.error
import urllib.request

URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2024-07-09"
POLLS = 3

for _ in range(POLLS):
    request = urllib.request.Request(URL, headers={"Metadata": "true"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    if status not in (200, 404):
        sys.exit(f"unexpected status {status}")
    json.loads(body)
    print(status)
