"""Times and spans as transcripts write them: `15m`, `00:15:00`, `7d 00:00:00`."""

from tests.simulator.world.event_queue import START_MS

DAY_S = 24 * 3600
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": DAY_S}
#: The longest duration a transcript may name, in seconds: as many days as a random world lasts.
SPAN_S_MAX = 366 * DAY_S


def seconds(text: str) -> int:
    """A duration such as `90s`, `15m`, `1h`, `7d` or `-1h`, in seconds."""
    return int(text[:-1]) * UNITS_S[text[-1]]


def clock_time(text: str) -> int:
    """A time since the beginning, `00:15:00`, in seconds."""
    hours, minutes, rest = (int(part) for part in text.split(":"))
    return hours * 3600 + minutes * 60 + rest


def moment(at_ms: int) -> str:
    """A time since the beginning: `00:15:00`, `7d 00:00:00`."""
    seconds_, ms = divmod(at_ms - START_MS, 1000)
    days, seconds_ = divmod(seconds_, DAY_S)
    text = f"{seconds_ // 3600:02d}:{seconds_ // 60 % 60:02d}:{seconds_ % 60:02d}"
    text += f".{ms:03d}" if ms else ""
    return f"{days}d {text}" if days else text
