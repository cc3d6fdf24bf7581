"""`python -m forewarn_conformance.provider STEP --region R --machine-id H --rack-id R`."""

from __future__ import annotations

import argparse
import json
import os
import sys

from forewarn_conformance.provider.steps import STEPS, Tenant, answer_of

#: Operator API of a service on the same machine.
DEFAULT_SERVER = "http://127.0.0.1:8470"


def main(arguments: list[str] | None = None) -> int:
    """Print the answer of a step; return 0 if it succeeded or is skipped, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m forewarn_conformance.provider")
    parser.add_argument("step", choices=sorted(STEPS))
    parser.add_argument("--region", default="", help="not used: a service has one region")
    parser.add_argument("--machine-id", default="", help="name of a host that the tenant uses")
    parser.add_argument("--rack-id", default="", help="name of a rack that the tenant uses")
    given = parser.parse_args(arguments)
    tenant = Tenant(
        os.environ.get("FOREWARN_SERVER") or DEFAULT_SERVER,
        os.environ.get("FOREWARN_TOKEN", ""),
        machine=given.machine_id,
        rack=given.rack_id,
    )
    answer = answer_of(given.step, tenant)
    sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    return 0 if answer["success"] or "skipped" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
