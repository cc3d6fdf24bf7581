"""Compute the availability of VMs from `forewarn availability export`.

    python3 check-availability.py october.jsonl

It shares nothing with Forewarn, and needs only Python's standard library.
"""

import json
import sys
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from itertools import pairwise

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FOREVER = 1 << 62


def ms(text):
    """Return a time as milliseconds since 1970."""
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (at - EPOCH) // timedelta(milliseconds=1)


def read(lines):
    """Return the period, the tenures and the disturbances of each VM, group and owner."""
    period, tenures, disturbances = None, defaultdict(list), defaultdict(list)
    present, started, ended = set(), [], set()
    for line in lines:
        record = json.loads(line)
        if record["kind"] == "period":
            period = ms(record["from"]), ms(record["to"]), ms(record["at"])
            continue
        for vm in record["vms"]:
            key = vm, record["group"], record["owner"]
            if record["kind"] == "present":
                present.add(key)
            elif record["kind"] == "arrived":
                tenures[key].append([ms(record["at"]), FOREVER])
            elif record["kind"] == "left":  # without an arrival it was there from the beginning
                if not tenures[key] or tenures[key][-1][1] != FOREVER:
                    tenures[key].append([0, FOREVER])
                tenures[key][-1][1] = ms(record["at"])
            elif record["at"] is None:
                started.append((key, record))
            else:
                ended.add((key, record["event"]))
                disturbances[key].append(disturbed(record))
    for key in present - tenures.keys():
        tenures[key].append([0, FOREVER])
    for key, record in started:  # unless it has ended while the records were read
        if (key, record["event"]) not in ended:
            disturbances[key].append((ms(record["started"]), period[2]))
    return period, tenures, disturbances


def disturbed(event):
    """Return when an event disturbed its VMs: from Started until gone, or as measured."""
    begin, end = ms(event["started"]), ms(event["at"])
    if event["interruption_ms"] is not None:
        end = min(end, begin + event["interruption_ms"])
    return begin, end


def figures(period, tenures, disturbances):
    """Return counted and disturbed milliseconds; every instant counts once."""
    begin, end, _ = period
    points = sorted({begin, end, *(at for span in tenures + disturbances for at in span)})
    counted = lost = 0
    for one, other in pairwise(at for at in points if begin <= at <= end):
        if any(first <= one < last for first, last in tenures):
            counted += other - one
            if any(first <= one < last for first, last in disturbances):
                lost += other - one
    return counted, lost


def main(lines):
    """Return the figures of all VMs together and of each VM that counts."""
    period, tenures, disturbances = read(lines)
    vms = {}
    for key, spans in sorted(tenures.items()):
        counted, lost = figures(period, spans, disturbances[key])
        if counted:
            vms[" ".join(key)] = {"counted_ms": counted, "disturbed_ms": lost}
    counted = sum(each["counted_ms"] for each in vms.values())
    lost = sum(each["disturbed_ms"] for each in vms.values())
    share = (counted - lost) * 1_000_000 // counted / 10_000 if counted else None
    totals = {"counted_ms": counted, "disturbed_ms": lost, "available_percent": share}
    return {**totals, "vms": vms}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(json.dumps(main(file), indent=2))
