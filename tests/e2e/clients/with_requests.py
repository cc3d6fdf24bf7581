"""One GET and one POST with requests: a plain one each, then both on one session."""

import sys

import requests

URL, EVENT = sys.argv[1], sys.argv[2]
HEADERS = {"Metadata": "True"}
BODY = {"StartRequests": [{"EventId": EVENT}]}

answer = requests.Response()
with requests.Session() as session:
    session.trust_env = False
    for get, post in ((requests.get, requests.post), (session.get, session.post)):
        answer = get(URL, headers=HEADERS, timeout=120)
        answer.raise_for_status()
        assert answer.json()["DocumentIncarnation"] >= 0
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert post(URL, headers=HEADERS, json=BODY, timeout=120).status_code == 200
        assert post(URL, headers=HEADERS, data=str(BODY).replace("'", '"'), timeout=9).text == ""
        assert get(URL, timeout=120).status_code == 400
print(answer.text)
