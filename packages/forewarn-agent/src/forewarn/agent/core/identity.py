"""Identity: recognises this VM among the resources of an event, by complete names; pure."""

from __future__ import annotations

from forewarn.agent.value import Value

NAME_CHARACTERS_MAX = 255
NOT_NAMES = frozenset(" \"'<>{}/\\")
COMPUTER_NAME_DIGITS = 6  # computer names of scale sets end in six base-36 digits


class Identity(Value):
    """The names of this VM in Resources; case is ignored."""

    name: str
    #: All names in lower case, each also with the leading underscore of the oldest api-version.
    names: frozenset[str]

    def __init__(self, name: str, aliases: tuple[str, ...] = ()) -> None:
        """Store the name from the instance metadata, and further names of the same VM."""
        assert name
        names = frozenset(text.lower() for text in (name, *aliases))
        super().__init__(name, names | {f"_{text}" for text in names})

    def is_me(self, resource: str) -> bool:
        """Return whether a resource is this VM."""
        return resource.lower() in self.names

    def named_in(self, resources: tuple[str, ...]) -> bool:
        """Return whether this VM is among the resources. Source: C-3."""
        return not self.names.isdisjoint(map(str.lower, resources))

    def position_in(self, resources: tuple[str, ...]) -> int:
        """Return this VM's index among the resources; their number if this VM is absent."""
        places = (place for place, resource in enumerate(resources) if self.is_me(resource))
        return next(places, len(resources))

    def others_in(self, resources: tuple[str, ...]) -> tuple[str, ...]:
        """Return the resources other than this VM, in the same order."""
        return tuple(resource for resource in resources if not self.is_me(resource))


def is_name(text: str) -> bool:
    """Return whether a text can be a VM's name, unlike the error page of another server.

    Azure allows 64 characters, and a few more for an instance of a scale set. Forewarn allows
    letters of all scripts.
    """
    return 0 < len(text) <= NAME_CHARACTERS_MAX and text.isprintable() and not set(text) & NOT_NAMES


def plain(resource: str) -> str:
    """Return a resource name in lower case, without the underscore of the oldest api-version."""
    return resource.lower().removeprefix("_")


def resource_name(computer_name: str, scale_set: str) -> str:
    """Return the resource name of a scale set's computer in events.

    The last six characters of the computer name are the instance's number in base 36: `vmss00000A`
    is `vmss_10`. The other characters can differ from the scale set's name.

    Raises:
        ValueError: the computer name does not end in six base-36 digits.
    """
    host = computer_name.split(".", 1)[0]
    digits = host[-COMPUTER_NAME_DIGITS:]
    if len(host) <= COMPUTER_NAME_DIGITS or not (digits.isalnum() and digits.isascii()):
        raise ValueError(f"{computer_name!r} does not end in six base-36 digits")
    return f"{scale_set}_{int(digits, 36)}"
