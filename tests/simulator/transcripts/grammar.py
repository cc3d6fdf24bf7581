"""How the commands of transcripts are written: one line for each, and what is wrong with another.

No command is done in here (`commands.py`); whether what is named exists is asked there.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from forewarn_base.values import value
from forewarn_core.fleet.impact import Impact, Source
from forewarn_core.fleet.topology import GroupKind
from tests.simulator.transcripts.time_spans import DAY_S, SPAN_S_MAX, clock_time, seconds

Words = tuple[str, ...]
Options = Mapping[str, str]

_GROUP = "[kind=KIND] [owner=WHO] [domains=N] [strict] [automatic=IMPACT,…]"
_GROUP += " [terminate=DURATION] [reimage] [disabled] [together=status|shared]"
_OF_MANY = "[at-once=N] [takes=DURATION] [failures=N] [deadline=TIME] [canary=HOSTS]"
_OF_MANY += " [gate=passes|fails]"
_POLICY = "[window=HH:MM-HH:MM] [zone=ZONE] [except=DATE] [freeze=DURATION] [at-once=N]"
_POLICY += " [pause=DURATION] [canary=N] [rest=DURATION] [postponing=DURATION]"
_ASKING = "[not-before=HH:MM:SS] [duration=DURATION] [description=TEXT] [impact=IMPACT]"
_ASKING += " [source=SOURCE] [to=HOST]"

#: Every command. In lower case stand the words of the language, `|` between those to choose from;
#: in capitals what is filled in, `…` after what may be several; in brackets what may be left out.
USAGES = (
    "host NAME [fd=N] [ud=N] [zone=ZONE] [driver=by-hand|by-proxy]",
    f"group NAME {_GROUP}",
    "group NAME silent|again",
    "vm NAME on=HOST [group=GROUP] [size=SIZE] [gpu] [spot] [node=far]",
    "move NAME to=HOST",
    "remove host|group|vm NAME",
    f"operator reboot|update|network|migrate|degrade|fail|lose HOST… {_ASKING}",
    "operator cancel|complete WORK [REASON…]",
    "operator give-up OP REASON…",
    "operator retry WORK",
    "operator why WORK [HOST…]",
    "operator acknowledge EVENT…",
    "operator repair HOST",
    f"operator maintenance HOST… {_OF_MANY}",
    f"operator policy {_POLICY}",
    "operator start|resume MAINTENANCE",
    "operator pause MAINTENANCE [REASON…] [keep=yes]",
    "operator gate MAINTENANCE REASON…",
    "operator postpone MAINTENANCE HOST… until=TIME [by=WHO] [reason=TEXT]",
    f"user reboot|redeploy|delete|reimage VM… {_ASKING}",
    f"platform evict|reboot|redeploy|delete|reimage VM… {_ASKING}",
    "vm NAME polls [full] [version=V]",
    "vm NAME approves EVENT… [version=V]",
    "vm NAME posts TEXT… [case=lower] [version=V]",
    "vm NAME halts|boots",
    "agent NAME",
    "agent NAME dies",
    "driver finishes OP",
    "driver breaks OP REASON…",
    "driver refuses REASON…",
    "driver hangs",
    "driver begun|aborted",
    "wait DURATION",
    "crash",
    "crash before|after commit|publish|begin|abort",
    "restart",
    "store refused|full|recovers",
    "store lost before|after",
    "store next WRITE…",
    "nodes lag=DURATION",
    "nodes fail|recover",
    "follower cut|joins",
    "writer pauses|is-cut-off|returns",
    "clock steps STEP",
)

_DURATIONS = f"write 90s, 15m, 6h or 2d, at most {SPAN_S_MAX // DAY_S}d"
#: What fits where a kind of value stands, and what is wrong with what does not.
_PATTERNS: Mapping[str, tuple[str, str]] = {
    "DURATION": (r"\d{1,9}[smhd]", f"is not a duration; {_DURATIONS}"),
    "STEP": (r"-?\d{1,9}[smhd]", f"is not a step of a clock, with a minus for back; {_DURATIONS}"),
    "HH:MM:SS": (r"\d{1,4}:\d\d:\d\d", "is not a time since the beginning; write 00:15:00"),
    "N": (r"\d{1,9}", "is not a number of 0 or more"),
    "OP": (r"op-\d{1,9}", "is not an operation; write op-1"),
    "WORK": (r"(op|m)-\d{1,9}", "is not an operation; write op-1"),
    "EVENT": (r"ev-\d{1,9}", "is not an event; write ev-1"),
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "KIND": tuple(each.value for each in GroupKind),
    "IMPACT": tuple(each.value for each in Impact),
    "SOURCE": tuple(each.value for each in Source),
    "WRITE": ("fine", "refused", "full", "lost-before", "lost-after"),
}
#: What may hold an equals sign.
_FREE = frozenset({"TEXT", "REASON"})
_OPTION = re.compile(r"([a-z-]+)=(.*)", re.DOTALL)
#: Words that are named where one of them was expected, and none is like what stands there.
NAMED_MAX = 20

#: How alike a word must be to be proposed, of 1: two letters that changed places are 0.75.
NEAR = 0.74


class Unreadable(ValueError):
    """A line that is not a command, with the reason."""


@value
class CommandForm:
    """One line of `USAGES`, taken apart."""

    usage: str
    #: Words in their order: to choose from, in lower case, or a kind of value.
    places: tuple[str, ...]
    #: Words that may follow, in any order.
    flags: tuple[str, ...]
    #: Option -> kind of its value, or words to choose from.
    options: Mapping[str, str]
    required: tuple[str, ...]

    @property
    def free(self) -> bool:
        """Whether its last words are text of any kind."""
        return self.places[-1].strip("[]…") in _FREE

    def words_at(self, at: int) -> tuple[str, ...]:
        """The words of the language that can stand at a place; none where a value does."""
        return _words(self.places[at]) if at < len(self.places) else ()


@value
class Command:
    """A command as it was read; its values fit, whatever they name."""

    words: Words
    options: Options


def read(line: str) -> Command:
    """Read a command.

    Raises:
        Unreadable: it is none.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise Unreadable("a quotation is not closed") from error
    form, siblings = _form(words)
    plain: list[str] = []
    options: dict[str, str] = {}
    for word in words:
        option = _OPTION.fullmatch(word)
        if option is None or (form.free and option[1] not in form.options):
            plain.append(word)
            continue
        name, value = option.groups()
        if name not in form.options:
            known = [f"{each}=" for each in form.options]
            raise Unreadable(f"`{form.places[0]}` has no option {name}={meant(f'{name}=', known)}")
        if name in options:
            raise Unreadable(f"{name}= is given twice")
        options[name] = value
    _check_words(form, plain, siblings)
    for name in form.required:
        if name not in options:
            raise Unreadable(f"{name}= is missing; write `{form.usage}`")
    for name, value in options.items():
        _check(form.options[name], value, f"{name}=")
    return Command(tuple(plain), options)


def meant(word: str, known: Iterable[str]) -> str:
    """What may have been meant by a word, as the end of a sentence; else what there is."""
    names = sorted(set(known))
    near = get_close_matches(word, names, n=1, cutoff=NEAR)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there is {', '.join(names)}" if 0 < len(names) <= NAMED_MAX else ""


def _parsed(usage: str) -> CommandForm:
    places, flags, required = list[str](), list[str](), list[str]()
    options: dict[str, str] = {}
    for token in usage.split():
        bare = token.strip("[]")
        name, equals, kind = bare.partition("=")
        if equals:
            options[name] = kind
            if bare == token:
                required.append(name)
        elif bare != token and bare.islower():
            flags.append(bare)
        else:
            places.append(token)
    return CommandForm(usage, tuple(places), tuple(flags), options, tuple(required))


FORMS = tuple(map(_parsed, USAGES))


def _words(place: str) -> tuple[str, ...]:
    """The words of the language to choose from; none where a kind of value is named."""
    return tuple(place.split("|")) if place.islower() else ()


def _form(words: Sequence[str]) -> tuple[CommandForm, tuple[CommandForm, ...]]:
    """The form a line has by the words of the language in it, and all that begin alike."""
    plain = [word for word in words if not _OPTION.fullmatch(word)]
    first = plain[0] if plain else words[0]
    siblings = left = tuple(form for form in FORMS if form.places[0] == first)
    if not left:
        known = {form.places[0] for form in FORMS}
        raise Unreadable(f"there is no command {first!r}{meant(first, known)}")
    for at, word in enumerate(plain[1:], start=1):
        fixed = tuple(form for form in left if word in form.words_at(at))
        left, before = fixed or tuple(form for form in left if not form.words_at(at)), left
        if not left:
            known = {each for form in before for each in form.words_at(at)}
            so_far = " ".join(plain[:at])
            raise Unreadable(f"`{so_far}` is not followed by {word!r}{meant(word, known)}")
    whole = [f for f in left if not any(map(f.words_at, range(len(plain), len(f.places))))]
    if not whole:
        known = {each for form in left for each in form.words_at(len(plain))}
        raise Unreadable(f"`{' '.join(plain)}` lacks a word{meant('', known)}")
    return whole[0], siblings


def _check_words(form: CommandForm, plain: Sequence[str], siblings: Iterable[CommandForm]) -> None:
    for at, place in enumerate(form.places):
        if place.islower():
            continue
        kind = place.strip("[]…")
        found = plain[at:] if "…" in place else plain[at : at + 1]
        if not found and place[0] != "[":
            raise Unreadable(f"{kind} is missing; write `{form.usage}`")
        for word in found:
            _check(kind, word, "")
    if "…" in form.places[-1]:
        return
    for at, word in enumerate(plain[len(form.places) :], start=len(form.places)):
        if word not in form.flags:
            others = (each for sibling in siblings for each in sibling.words_at(at))
            known = {*form.flags, *others}
            what = " ".join(plain[:at])
            if not known:
                raise Unreadable(f"nothing follows `{what}`, but here stands {word!r}")
            raise Unreadable(f"`{what}` is not followed by {word!r}{meant(word, known)}")


def _check(kind: str, word: str, name: str) -> None:
    """Refuse a value that is not of its kind."""
    for part in word.split(",") if kind == "IMPACT,…" else (word,):
        choices = _CHOICES.get(kind.removesuffix(",…"), _words(kind))
        if choices and part not in choices:
            raise Unreadable(f"{name}{part} is not known{meant(part, choices)}")
    if kind in _PATTERNS:
        pattern, problem = _PATTERNS[kind]
        if not re.fullmatch(pattern, word) or abs(_span_s(kind, word)) > SPAN_S_MAX:
            raise Unreadable(f"{name}{word} {problem}")
    if not word:
        raise Unreadable(f"{name or kind} is empty")


def _span_s(kind: str, word: str) -> int:
    """How long a duration is, or how long after the beginning a time is; 0 for other kinds."""
    if kind == "HH:MM:SS":
        return clock_time(word)
    return seconds(word) if kind in {"DURATION", "STEP"} else 0
