"""Recommendations in the documents of an emulator with the preview api-version."""

import json
from collections.abc import Callable

import pytest

from emulator_tests.conftest import Stage
from forewarn_base.settings import MetadataSettings
from forewarn_server.cli.api_client import ApiRefused
from tests.asking import ask

NEW, OLD = "2024-07-09", "2020-07-01"
ADVICE = ["SpotRebalanceRecommendation"]


@pytest.fixture
def preview(staged: Callable[..., Stage]) -> Stage:
    """An emulator with the preview api-version."""
    return staged(metadata=MetadataSettings(rate_per_s=0.0, preview=True))


def read(stage: Stage, version: str) -> tuple[int, list[dict[str, str]]]:
    """Return incarnation and events of a document in a version."""
    address = stage.emulator.url.removeprefix("http://").partition("/")[0]
    reply = ask(address, "GET", f"/metadata/scheduledevents?api-version={version}")
    assert reply.status == 200, reply
    document = json.loads(reply.body)
    return document["DocumentIncarnation"], document["Events"]


def types(stage: Stage, version: str) -> list[str]:
    """Return the types of the events of a document in a version."""
    return [event["EventType"] for event in read(stage, version)[1]]


def test_recommendation_comes_and_goes(preview: Stage) -> None:
    """It has no NotBefore, and an older client sees only that the incarnation grows. Z-9, V-2."""
    assert read(preview, NEW) == (0, [])
    preview.run("spot-rebalance")
    incarnation, [event] = read(preview, NEW)
    assert (incarnation, event["EventType"], event["EventStatus"]) == (1, *ADVICE, "Advisory")
    assert event["NotBefore"] == ""
    assert read(preview, OLD) == (1, [])
    preview.advance("11m")
    assert read(preview, NEW) == read(preview, OLD) == (2, [])
    assert preview.state("spot-rebalance") == "finished"


def test_approving_a_recommendation_does_nothing(preview: Stage) -> None:
    """It is answered 200, and the recommendation stays. Source: Z-9."""
    preview.run("spot-rebalance")
    before = read(preview, NEW)
    body = json.dumps({"StartRequests": [{"EventId": before[1][0]["EventId"]}]}).encode()
    address = preview.emulator.url.removeprefix("http://").partition("/")[0]
    path = f"/metadata/scheduledevents?api-version={NEW}"
    assert ask(address, "POST", path, body=body).status == 200
    assert read(preview, NEW) == before


def test_recommendation_stays_beside_an_event(preview: Stage) -> None:
    """Equal incarnations have equal events, also with changes of both sides. Source: Z-9, D-1."""
    seen = [read(preview, NEW)]
    preview.run("spot-rebalance")
    seen.append(read(preview, NEW))
    preview.run("user-reboot")
    seen.append(read(preview, NEW))
    assert types(preview, NEW) == ["Reboot", *ADVICE]
    assert types(preview, OLD) == ["Reboot"]
    preview.advance("12m")
    seen.append(read(preview, NEW))
    assert types(preview, NEW) == ["Reboot"]
    assert [incarnation for incarnation, _ in seen] == [0, 1, 2, 3]


def test_scenario_is_listed_only_with_the_preview(stage: Stage, preview: Stage) -> None:
    """Without the preview no client could see it. Source: Z-9."""
    listed = [
        {each["name"] for each in one.api.get("/v1/scenarios")["scenarios"]}
        for one in (stage, preview)
    ]
    assert listed[1] - listed[0] == {"spot-rebalance"}
    with pytest.raises(ApiRefused, match="does not serve"):
        stage.run("spot-rebalance")
    with pytest.raises(ApiRefused):
        stage.api.get("/v1/scenarios/nonsense")
