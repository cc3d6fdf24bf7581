"""Draws `docs/phases.svg` from the tables of an operation's alert and a maintenance's phase.

This module defines the place of each state on the sheet; a state without a place is an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_core.fleet.lifecycle import ALERT_MOVES
from forewarn_core.fleet.maintenance import PHASE_MOVES
from tools.docs.lifecycle import BOX_HEIGHT, BOX_WIDTH, STYLE, Point, text

SHEET_WIDTH, SHEET_HEIGHT = 900, 640
#: Number of points of a curve.
STEPS = 60
#: Distance of a curve from the straight line, as a fraction of the line's length.
BEND = 0.16

Labels = Mapping[tuple[str, str], str]

PHASE_PLACES: dict[str, Point] = {
    "Planning": (110, 210),
    "Due": (220, 70),
    "Announcing": (600, 70),
    "Working": (790, 210),
    "Checking": (450, 285),
    "Halted": (450, 395),
}
ALERT_PLACES: dict[str, Point] = {
    "none": (400, 545),
    "blocked": (110, 545),
    "overdue": (740, 485),
    "stuck": (740, 605),
}
SVG_HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SHEET_WIDTH} {SHEET_HEIGHT}"
  role="img" aria-label="The phases of a maintenance, and the alerts of an operation">
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"
  orient="auto"><path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>"""


def phases_svg() -> str:
    """Return the diagram as SVG."""
    phases = {(a.__name__, b.__name__): label for (a, b), label in PHASE_MOVES.items()}
    alerts = {(a.value, b.value): move.value for (a, move), b in ALERT_MOVES.items()}
    halts = {pair for pair in phases if pair[1] == "Halted"}
    parts = [
        SVG_HEAD,
        f"<style>{STYLE}</style>",
        text((34, 30), "Maintenance: what it does now", kind="head"),
        *_machine({pair: phases[pair] for pair in phases if pair not in halts}, PHASE_PLACES),
        text((540, 412), "every phase can be halted", kind="note left"),
        text((34, 450), "Operation: what people are alerted to", kind="head"),
        *_machine(alerts, ALERT_PLACES),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _machine(moves: Labels, places: Mapping[str, Point]) -> list[str]:
    assert {state for pair in moves for state in pair} == set(places), "every state has a place"
    lines = [line for pair, label in moves.items() for line in _arrow(pair, label, places)]
    return lines + [_box(state, place) for state, place in places.items()]


def _arrow(pair: tuple[str, str], label: str, places: Mapping[str, Point]) -> list[str]:
    """Draw a move as a curve between boxes; a move within a box has only a text."""
    (x1, y1), (x2, y2) = places[pair[0]], places[pair[1]]
    if pair[0] == pair[1]:
        return [text((x1, y1 + BOX_HEIGHT // 2 + 14), f"↻ {label}", kind="note")]
    bend_x, bend_y = (x1 + x2) / 2 + (y1 - y2) * BEND, (y1 + y2) / 2 + (x2 - x1) * BEND
    curve = []
    for step in range(STEPS + 1):
        t = step / STEPS
        parts = (1 - t) ** 2, 2 * t * (1 - t), t**2
        x = parts[0] * x1 + parts[1] * bend_x + parts[2] * x2
        y = parts[0] * y1 + parts[1] * bend_y + parts[2] * y2
        if not any(_is_inside((x, y), place) for place in ((x1, y1), (x2, y2))):
            curve.append((round(x), round(y)))
    path = " L".join(f"{x} {y}" for x, y in curve)
    x, y = curve[len(curve) * 2 // 5]
    return [f'<path class="move" d="M{path}"/>', text((x, y - 4), label, kind="note")]


def _is_inside(point: tuple[float, float], place: Point) -> bool:
    return (
        abs(point[0] - place[0]) < BOX_WIDTH // 2 + 2
        and abs(point[1] - place[1]) < BOX_HEIGHT // 2 + 2
    )


def _box(state: str, place: Point) -> str:
    x, y = place[0] - BOX_WIDTH // 2, place[1] - BOX_HEIGHT // 2
    box = f'<rect class="box" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
    return f"{box}{text((place[0], place[1] + 5), state)}"
