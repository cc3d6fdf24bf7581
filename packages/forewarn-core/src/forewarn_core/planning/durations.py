"""How long work on a host takes, learned from earlier work of the same kind. Source: F-9."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from forewarn_base.values import value
from forewarn_core.planning.policy import MaintenancePolicy

#: Maximum number of samples of each kind of work; the oldest are dropped.
SAMPLES_MAX = 1_000


@value
class DurationSample:
    """How long the work of one operation took on its host."""

    #: Number of the operation.
    operation: int
    #: Labels of the host at that time as `key=value`, its zone included.
    labels: tuple[str, ...]
    #: From the start to the end, in seconds; 1 or more.
    duration_s: int


@value
class LearnedDuration:
    """The duration of the work on hosts with one label, as earlier work shows."""

    #: The label as `key=value`; empty: all hosts.
    label: str
    #: Percentage of the samples that took at most `duration_s`.
    percent: int
    #: Number of samples.
    samples: int
    duration_s: int


def learned(
    samples: Iterable[DurationSample], policy: MaintenancePolicy
) -> tuple[LearnedDuration, ...]:
    """Return the duration for each label with enough samples, as the policy asks; O(samples).

    The percentile is by nearest rank, so it is the duration of one of the samples.
    """
    percent, key = policy.duration_percentile, policy.duration_label
    if not percent:
        return ()
    durations_s: defaultdict[str, list[int]] = defaultdict(list)
    for sample in samples:
        label = next((each for each in sample.labels if each.startswith(f"{key}=")), "")
        if label or not key:
            durations_s[label if key else ""].append(sample.duration_s)
    return tuple(
        LearnedDuration(label, percent, len(each), sorted(each)[-(-percent * len(each) // 100) - 1])
        for label, each in sorted(durations_s.items())
        if len(each) >= max(policy.duration_samples, 1)
    )


def duration_text(duration: LearnedDuration, asked_s: int = 0) -> str:
    """Return where a duration comes from, as a clause for people; `asked_s` 0: leave it out."""
    hosts = f" on hosts with {duration.label}" if duration.label else ""
    share = f"{duration.percent} % of {duration.samples} earlier operations of its kind{hosts}"
    text = f"took at most {_minutes(duration.duration_s)} in {share}"
    return f"{text}; {_minutes(asked_s)} was asked" if asked_s else text


def _minutes(seconds: int) -> str:
    """Return a duration in minutes, rounded up; below two minutes in seconds."""
    return f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60)} min"
