"""Runs the stories with a client, several in parallel."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from forewarn_base.errors import CallerError
from forewarn_conformance.agent_trial import AGENT
from forewarn_conformance.checks import Check, ConformanceFault
from forewarn_conformance.client_stories import STORIES, Story
from forewarn_conformance.client_trial import ClientOptions, ClientTrial
from forewarn_conformance.run import Result, Verdict, judged

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


def run_stories(stories: Sequence[Story], options: ClientOptions) -> Generator[Result, None, None]:
    """Run the stories, each with its own client and service; yield the results in order.

    A client that sends no request fails the first story, and the others are skipped. When the
    caller ends the iteration early, no client is left.

    Raises:
        ClientUnstartable: the command cannot be run.
    """
    problem = _first_request(options) if len(stories) > 1 else ""
    if problem:
        yield Result(_check_of(stories[0]), Verdict.FAILED, problem)
        for story in stories[1:]:
            yield Result(_check_of(story), Verdict.SKIPPED, "the client sends no request")
        return
    ended = threading.Event()
    executor = ThreadPoolExecutor(max(1, options.parallel))
    try:
        yield from executor.map(partial(_play, options=options, ended=ended), stories)
    finally:
        ended.set()
        executor.shutdown(cancel_futures=True)


def _first_request(options: ClientOptions) -> str:
    """Return why a client sends no request after its start; empty if it sends one."""
    with tempfile.TemporaryDirectory(prefix="forewarn-conformance-") as directory:
        trial = ClientTrial(options, Path(directory))
        try:
            trial.start()
        except ConformanceFault as fault:
            return str(fault)
        finally:
            trial.close()
    return ""


def _check_of(story: Story) -> Check[object]:
    return Check(story.statement, f"{story.name}: {story.title}", lambda _: None)


def _play(story: Story, options: ClientOptions, ended: threading.Event) -> Result:
    check = _check_of(story)
    with tempfile.TemporaryDirectory(prefix="forewarn-conformance-") as directory:
        trial = ClientTrial(options, Path(directory), ended)
        try:
            result = judged(check, partial(story.play, trial))
        finally:
            trial.close()
    violations = trial.server.seen.violations
    if not violations:
        return result
    faults = [result.reason, *violations] if result.verdict is Verdict.FAILED else violations
    return Result(check, Verdict.FAILED, "; ".join(faults))
