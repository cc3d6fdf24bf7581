"""How transcripts are written: what is not a command, or cannot be done, is said in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator.transcripts.grammar import FORMS, USAGES, CommandForm, read
from tests.simulator.transcripts.time_spans import SPAN_S_MAX, seconds
from tests.simulator.transcripts.transcript import TranscriptInvalid, parse, play

PAGE = Path(__file__).resolve().parents[1] / "transcripts" / "README.md"
FLEET = "# T\nhost h1\nvm web_0 on=h1 group=web\n"
VM_USAGE = "vm NAME on=HOST [group=GROUP] [size=SIZE] [gpu] [spot] [node=far]"
DURATIONS = "write 90s, 15m, 6h or 2d, at most 366d"
BAD_FLEET = "The fleet cannot be described like this: "

UNREADABLE = {
    "dance": "there is no command 'dance'; there is agent, clock, crash, driver, follower, group, "
    "host, move, nodes, operator, platform, remove, restart, store, user, vm, wait, writer.",
    "hots h2": "there is no command 'hots'; did you mean host?",
    "vm db_0 on=h1 gruop=web": "`vm` has no option gruop=; did you mean group=?",
    "vm db_0 on=h1 on=h2": "on= is given twice.",
    "vm db_0": f"on= is missing; write `{VM_USAGE}`.",
    "vm": f"NAME is missing; write `{VM_USAGE}`.",
    "vm web_0 poll": "`vm web_0` is not followed by 'poll'; did you mean polls?",
    "vm web_0 approves ev1": "ev1 is not an event; write ev-1.",
    "vm web_0 approves": "EVENT is missing; write `vm NAME approves EVENT… [version=V]`.",
    "vm web_0 posts 'a": "a quotation is not closed.",
    "group web strct": "`group web` is not followed by 'strct'; did you mean strict?",
    "group web together=everywhere": "together=everywhere is not known; there is shared, status.",
    "group web automatic=Reboot,Rebot": "automatic=Rebot is not known; did you mean Reboot?",
    "group web kind=availability": "kind=availability is not known; did you mean availability-set?",
    "host h2 fd=one": "fd=one is not a number of 0 or more.",
    "host h2 zone=": "zone= is empty.",
    "clock jumps 6h": "`clock` is not followed by 'jumps'; there is steps.",
    "clock steps 6": f"6 is not a step of a clock, with a minus for back; {DURATIONS}.",
    "follower joned": "`follower` is not followed by 'joned'; there is cut, joins.",
    "agent web_0 dise": "`agent web_0` is not followed by 'dise'; did you mean dies?",
    "wait": "DURATION is missing; write `wait DURATION`.",
    "wait 15": f"15 is not a duration; {DURATIONS}.",
    "wait -1h": f"-1h is not a duration; {DURATIONS}.",
    "wait 1000000000d": f"1000000000d is not a duration; {DURATIONS}.",
    "wait 367d": f"367d is not a duration; {DURATIONS}.",
    "wait 1h 2h": "nothing follows `wait 1h`, but here stands '2h'.",
    "crash during lunch": "`crash` is not followed by 'during'; there is after, before.",
    "crash before lunch": "`crash before` is not followed by 'lunch'; "
    "there is abort, begin, commit, publish.",
    "crash before": "`crash before` lacks a word; there is abort, begin, commit, publish.",
    "store rain": "`store` is not followed by 'rain'; "
    "there is full, lost, next, recovers, refused.",
    "store next lost-befor": "lost-befor is not known; did you mean lost-before?",
    "operator rebot h1": "`operator` is not followed by 'rebot'; did you mean reboot?",
    "operator why 1": "1 is not an operation; write op-1.",
    "operator reboot h1 not-before=15": "not-before=15 is not a time since the beginning; "
    "write 00:15:00.",
    "operator reboot h1 not-before=9999:00:00": "not-before=9999:00:00 is not a time since the "
    "beginning; write 00:15:00.",
}
"""Lines that are not commands."""

IMPOSSIBLE = {
    "restart": "the service runs already.",
    "crash\ncrash": "the service is down already.",
    "crash\nwriter pauses": "no writer runs; `restart` starts the service.",
    "writer returns": "no writer is away.",
    "writer pauses\nwriter is-cut-off": "two writers contend already.",
    "vm web_9 polls": "there never was a VM web_9; did you mean web_0?",
    "move web_9 to=h1": "there is no VM web_9; did you mean web_0?",
    "agent web_9": "there is no VM web_9; did you mean web_0?",
    "agent web_0 dies": "no agent runs in VM web_0.",
    "agent web_0\nagent web_0": "an agent runs in VM web_0 already.",
    "vm web_0 halts": "no agent was started in VM web_0, so that nothing can be lost.",
    "vm web_0 boots": "VM web_0 is not down; `vm web_0 halts` switches it off.",
    "agent web_0\nvm web_0 halts\nvm web_0 halts": "VM web_0 is down already.",
    "agent web_0\nvm web_0 halts\nvm web_0 polls": "VM web_0 is down.",
    "agent web_0\nvm web_0 halts\nagent web_0": "VM web_0 is down; `vm web_0 boots` starts its "
    "agent, too.",
    "group wbe silent": "there is no group wbe; there is web.",
    "driver finishes op-1": "there is no op-1.",
    "operator fail h1\noperator why op-2": "there is no op-2; did you mean op-1?",
    "host h2 fd=1000": f"{BAD_FLEET}host h2: domain 1000 is not between 0 and 999.",
}
"""Commands that cannot be done as things are."""


@pytest.mark.parametrize(("lines", "problem"), [*UNREADABLE.items(), *IMPOSSIBLE.items()])
def test_wrong_line_is_said_to_be_so(lines: str, problem: str) -> None:
    """A wrong line ends the story with its place, what is wrong and what there is."""
    with pytest.raises(TranscriptInvalid) as caught:
        list(play(parse(FLEET + lines, "story.txt")))
    assert str(caught.value) == f"story.txt:{4 + lines.count(chr(10))}: {problem}"


@pytest.mark.parametrize("usage", USAGES, ids=lambda usage: usage.partition(" [")[0])
def test_page_has_every_command(usage: str) -> None:
    """The page on transcripts has each command as it is written, its options too."""
    text = PAGE.read_text(encoding="utf-8").replace("\\|", "|")
    command, asks, options = usage.partition(" [not-before=")
    assert f"`{command}`" in text
    assert not asks or f"`[not-before={options}`" in text


def test_text_may_hold_what_looks_like_an_option() -> None:
    """A body or a reason may hold an equals sign; the options of its command are still read."""
    order = read("vm web_0 posts a=b c version=2017-08-01")
    assert order.words == ("vm", "web_0", "posts", "a=b", "c")
    assert dict(order.options) == {"version": "2017-08-01"}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.usage.partition(" [")[0])
def test_forms_are_told_apart_by_their_words(form: CommandForm) -> None:
    """A line with the words of one form is of that form, whatever stands where values do."""
    filled = {"OP": "op-1", "EVENT": "ev-1", "DURATION": "1h", "STEP": "-1h", "WRITE": "full"}
    filled |= {"WORK": "op-1", "MAINTENANCE": "m-1"}
    places = (place.split("|")[0].strip("[]…") for place in form.places)
    words = [filled.get(place, place) for place in places]
    options = {name: filled.get(form.options[name], "h1") for name in form.required}
    order = read(" ".join([*words, *(f"{name}={value}" for name, value in options.items())]))
    assert (order.words, order.options) == (tuple(words), options)


@pytest.mark.slow
def test_a_year_passes_in_seconds() -> None:
    """The longest time that may pass at once passes."""
    assert seconds("366d") == SPAN_S_MAX
    told = list(play(parse("# T\nhost h1\nwait 366d\n")))
    assert [each.lines for each in told] == [()]
