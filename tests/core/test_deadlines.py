"""The next of many deadlines, and those that are due, against a plain table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.deadlines import SLACK, Deadlines

KEYS = st.integers(1, 6)
TIMES = st.integers(0, 20)


@given(
    st.lists(
        st.tuples(st.just("put"), KEYS, TIMES)
        | st.tuples(st.just("drop"), KEYS)
        | st.tuples(st.just("next_ms"), TIMES)
        | st.tuples(st.just("due"), TIMES)
    )
)
def test_deadlines_are_those_of_a_table(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is put, put off and dropped: a look finds what a scan would."""
    deadlines: Deadlines[int] = Deadlines()
    table: dict[int, int] = {}
    for name, value, *rest in steps:
        found = getattr(deadlines, name)(value, *rest)
        if name == "put":
            table[value] = rest[0]
        elif name == "drop":
            table.pop(value, None)
        elif name == "next_ms":
            assert found == min((at for at in table.values() if at > value), default=None)
        else:
            assert found == sorted(key for key, at in table.items() if at <= value)
        assert len(deadlines) == len(table)


@given(st.lists(st.tuples(TIMES, st.dictionaries(KEYS, TIMES, max_size=3))))
def test_passed_deadlines_come_again_only_if_time_goes_back(
    steps: list[tuple[int, dict[int, int]]],
) -> None:
    """What was handled is not due again, unless it is put again or the clock is put back."""
    deadlines: Deadlines[int] = Deadlines()
    table: dict[int, int] = {}
    passed: set[int] = set()
    for now_ms, written in steps:
        for key, at_ms in written.items():
            if table.get(key) != at_ms:
                passed.discard(key)
            table[key] = at_ms
            deadlines.put(key, at_ms)
        passed = {key for key in passed if table[key] <= now_ms} | (
            passed if now_ms >= max((t for t, _ in steps), default=0) else set()
        )
        due = {key for key, at_ms in table.items() if at_ms <= now_ms}
        assert set(deadlines.due(now_ms)) <= due
        assert set(deadlines.due(now_ms)) >= due - passed
        deadlines.passed(now_ms)
        passed |= due
        assert deadlines.due(now_ms) == []
        assert deadlines.next_ms(now_ms) == min(
            (at_ms for at_ms in table.values() if at_ms > now_ms), default=None
        )


def test_dropped_deadlines_leave_nothing() -> None:
    """A heap does not grow by what is long over."""
    deadlines: Deadlines[int] = Deadlines()
    for number in range(10 * SLACK):
        deadlines.put(number, number + 1)
        deadlines.drop(number)
    assert len(deadlines._heap) <= SLACK + 1
    assert deadlines.next_ms(0) is None


def test_deadlines_stay_in_order_when_many_are_dropped() -> None:
    """What is left comes due one after another, whatever was dropped or put off. Source: L-1."""
    deadlines: Deadlines[int] = Deadlines()
    count = 8 * SLACK
    for number in range(count):
        deadlines.put(number, (number * 7919) % count + 1)
    left = {number: (number * 7919) % count + 1 for number in range(0, count, 9)}
    for number in range(count):
        if number not in left:
            deadlines.drop(number)
    now_ms, came = 0, []
    while (next_ms := deadlines.next_ms(now_ms)) is not None:
        now_ms = next_ms
        came += deadlines.due(now_ms)
        deadlines.passed(now_ms)
    assert came == sorted(left, key=left.__getitem__)


def test_deadlines_put_off_again_and_again_cost_nothing() -> None:
    """A group's deadline moves with each poll; nothing is added for that. Source: B-2."""
    deadlines: Deadlines[int] = Deadlines()
    for at_ms in (1, 1, 2, 2, 3):
        deadlines.put(1, at_ms)
    assert len(deadlines._heap) == 1
    assert deadlines.next_ms(0) == 3


def test_deadlines_that_come_nearer_leave_nothing() -> None:
    """A heap does not grow by the later times that were said before. Source: L-1."""
    deadlines: Deadlines[int] = Deadlines()
    for at_ms in range(10 * SLACK, 0, -1):
        deadlines.put(1, at_ms)
    assert len(deadlines._heap) <= SLACK + 2
    assert deadlines.next_ms(0) == 1


def test_dropping_many_at_once_leaves_nothing() -> None:
    """A fleet's work that ends together does not stay in memory."""
    deadlines: Deadlines[int] = Deadlines()
    for number in range(10 * SLACK):
        deadlines.put(number, number + 1)
    for number in range(10 * SLACK):
        deadlines.drop(number)
    assert len(deadlines._heap) <= SLACK
    assert deadlines.due(20 * SLACK) == []
