"""Runs the stories with a client, several in parallel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from forewarn.conformance.agent_trial import AGENT
from forewarn.conformance.checks import Check
from forewarn.conformance.client_stories import STORIES, Story
from forewarn.conformance.client_trial import ClientOptions, ClientTrial
from forewarn.conformance.run import Result, Verdict, judged
from forewarn.errors import CallerError

__all__ = ["AGENT", "ClientMissing", "ClientOptions", "run_stories", "stories_named"]


class ClientMissing(CallerError):
    """The command that starts the client is missing."""

    code = "conformance-client-missing"
    message = "The command that starts the client is missing."
    advice = "Write the client's command after `--`, or use --agent to check Forewarn's agent."


class StoryUnknown(CallerError):
    """No story has this name."""

    code = "conformance-story-unknown"
    status = 404
    message = "Story {name} does not exist."
    advice = "`forewarn conformance client --list` lists the stories."


def stories_named(names: Sequence[str]) -> list[Story]:
    """Return the stories with the given names; without names, return all stories.

    Raises:
        StoryUnknown: a name matches no story.
    """
    known = {story.name: story for story in STORIES}
    for name in names:
        if name not in known:
            raise StoryUnknown(name=name)
    return [known[name] for name in names] if names else list(STORIES)


def run_stories(stories: Sequence[Story], options: ClientOptions) -> Iterator[Result]:
    """Run the stories, each with its own client and service; yield the results in order."""
    with ThreadPoolExecutor(max(1, options.parallel)) as executor:
        yield from executor.map(partial(_judged, options=options), stories)


def _judged(story: Story, options: ClientOptions) -> Result:
    check: Check[object] = Check(story.statement, f"{story.name}: {story.title}", lambda _: None)
    with tempfile.TemporaryDirectory(prefix="forewarn-conformance-") as directory:
        trial = ClientTrial(options, Path(directory))
        try:
            result = judged(check, partial(story.play, trial))
        finally:
            trial.close()
    wrongs = trial.server.seen.wrongs
    if not wrongs:
        return result
    faults = [result.reason, *wrongs] if result.verdict is Verdict.FAILED else wrongs
    return Result(check, Verdict.FAILED, "; ".join(faults))
