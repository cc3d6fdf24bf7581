"""Names: whether a resource of an event is this VM, exactly and never by a part of a name; pure."""

from __future__ import annotations

from forewarn.agent.value import Value

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from typing import Final

NAME_CHARACTERS_MAX = 255
NOT_NAMES = frozenset(" \"'<>{}/\\")
COMPUTER_NAME_DIGITS = 6  # scale sets name computers PREFIX + six base-36 digits


class Identity(Value):
    """The names under which this VM may appear in Resources. Compared without case."""

    __slots__ = ("name", "names")
    name: Final[str]
    names: Final[frozenset[str]]
    """In lower case, each also with the underscore that the oldest form puts before it."""

    def __init__(self, name: str, aliases: tuple[str, ...] = ()) -> None:
        """Take the name of the instance metadata, and others that mean the same VM."""
        assert name
        names = frozenset(text.lower() for text in (name, *aliases))
        self.name = name
        self.names = names | {f"_{text}" for text in names}

    def is_me(self, resource: str) -> bool:
        """Return whether a resource is this VM."""
        return resource.lower() in self.names

    def named_in(self, resources: tuple[str, ...]) -> bool:
        """Return whether this VM is among the resources. Source: C-3."""
        return not self.names.isdisjoint(map(str.lower, resources))

    def position_in(self, resources: tuple[str, ...]) -> int:
        """Return this VM's place among the resources, from 0; their number where it has none."""
        places = (place for place, resource in enumerate(resources) if self.is_me(resource))
        return next(places, len(resources))

    def others_in(self, resources: tuple[str, ...]) -> tuple[str, ...]:
        """Return the resources that are not this VM, in their order."""
        return tuple(resource for resource in resources if not self.is_me(resource))


def is_name(text: str) -> bool:
    """Return whether a text can be a VM's name, and not a page of some other server.

    Azure allows 64 characters and a scale set's instance a few more; letters of any script are
    let through, since names are only compared.
    """
    return 0 < len(text) <= NAME_CHARACTERS_MAX and text.isprintable() and not set(text) & NOT_NAMES


def plain(resource: str) -> str:
    """Return a resource name as it is compared: lower case, without the old underscore."""
    return resource.lower().removeprefix("_")


def resource_name(computer_name: str, scale_set: str) -> str:
    """Return the name by which a scale set's events know one of its computers.

    The last six characters of the computer name are the instance's number in base 36
    (`vmss00000A` is `vmss_10`), whatever comes before them: its prefix need not be the scale
    set's name.

    Raises:
        ValueError: the computer name does not end in six base-36 digits.
    """
    host = computer_name.split(".", 1)[0]
    digits = host[-COMPUTER_NAME_DIGITS:]
    if len(host) <= COMPUTER_NAME_DIGITS or not (digits.isalnum() and digits.isascii()):
        raise ValueError(f"{computer_name!r} does not end in six base-36 digits")
    return f"{scale_set}_{int(digits, 36)}"
