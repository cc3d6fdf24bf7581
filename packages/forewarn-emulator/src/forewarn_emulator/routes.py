"""The emulator's own routes of the operator API: clock, scenarios, faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn_base.clock import SPEED_MAX
from forewarn_base.errors import nearest
from forewarn_base.protocol import timestamps
from forewarn_base.validation.fields import NAME, Duration, Number, Schema, Text
from forewarn_base.validation.forms import Field, Form
from forewarn_core.access.roles import Permission
from forewarn_emulator import scenario_files
from forewarn_emulator.attested_documents import ISSUER_PATH
from forewarn_emulator.faults import FaultKind, FaultNotSet, read_fault
from forewarn_emulator.options import ADVANCE_S_MAX
from forewarn_emulator.scenario_runner import Run, RunState
from forewarn_server.api.request_forms import EMPTY
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import (
    FLAG,
    TEXT,
    TEXT_OR_NONE,
    list_of,
    object_schema,
    page_schema,
)

if TYPE_CHECKING:
    from forewarn_emulator.emulator import Emulator
    from forewarn_emulator.scenario import Scenario

CERTIFICATE = "application/pkix-cert"

ADVANCE = Form(
    "AdvanceForm",
    "A move of the clock.",
    (Field("by", Duration(0, ADVANCE_S_MAX), "At most 31 days at once.", required=True),),
)
SPEED = Form(
    "SpeedForm",
    "The speed of the clock.",
    (Field("speed", Number(0, SPEED_MAX), "Emulated seconds per real second.", required=True),),
)
RUN = Form(
    "RunForm",
    "A run of a scenario.",
    (
        Field("vm", NAME, "VM to affect (default: the first VM)."),
        Field(
            "text",
            Text(scenario_files.FILE_BYTES_MAX, lines=True),
            "Text of your own scenario, in TOML (default: the built-in scenario with the name).",
        ),
    ),
)
FAULT = Form(
    "FaultForm",
    "A fault.",
    (
        Field(
            "fault",
            Text(),
            "The fault: KIND or KIND=ARG,ARG, as on the command line.",
            required=True,
        ),
    ),
)

_COUNT: Schema = {"type": "integer", "minimum": 0}


CLOCK_SHAPE = object_schema(now=TEXT, speed={"type": "number"}, stopped=FLAG)
RUN_SHAPE = object_schema(
    state={"type": "string", "enum": [state.value for state in RunState]},
    vm=TEXT,
    started=TEXT,
    steps_done=_COUNT,
    steps=_COUNT,
    problem=TEXT_OR_NONE,
    operations=list_of(TEXT),
    maintenances=list_of(TEXT),
)
_SCENARIO: dict[str, Schema] = {
    "name": TEXT,
    "title": TEXT,
    "about": TEXT,
    "run": {"anyOf": [RUN_SHAPE, {"type": "null"}]},
}
SCENARIO_SHAPE = object_schema(**_SCENARIO)
STORY_SHAPE = object_schema(**_SCENARIO, text=TEXT_OR_NONE)
_FAULTS = page_schema("faults", object_schema(kind=TEXT, fault=TEXT))


@Route(f"GET {ISSUER_PATH}", Permission.PUBLIC, answer=None, gives=(CERTIFICATE,))
async def get_attested_issuer(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """Read the CA certificate of attested documents."""
    return ApiResponse(emulator.attested.issuer(), media=CERTIFICATE)


# --- clock -------------------------------------------------------------------------------------


def _clock(emulator: Emulator) -> ApiResponse:
    clock = emulator.pace
    shown = timestamps.iso8601(clock.now_ms())
    return ApiResponse({"now": shown, "speed": clock.speed, "stopped": clock.stopped})


@Route("GET /v1/clock", Permission.READ_FLEET, answer=CLOCK_SHAPE)
async def get_clock(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """Show the emulator's clock."""
    return _clock(emulator)


@Route("POST /v1/clock/advance", Permission.OPERATE, answer=CLOCK_SHAPE, form=ADVANCE)
async def advance_clock(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Move the clock forward; return after all effects."""
    await emulator.pacing.advance(call.form["by"] * 1000)
    return _clock(emulator)


@Route("POST /v1/clock/speed", Permission.OPERATE, answer=CLOCK_SHAPE, form=SPEED)
async def set_clock_speed(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Run the clock at another speed."""
    await emulator.set_speed(call.form["speed"])
    return _clock(emulator)


@Route("POST /v1/clock/stop", Permission.OPERATE, answer=CLOCK_SHAPE, form=EMPTY)
async def stop_clock(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """Stop the clock."""
    emulator.pace.stop()
    return _clock(emulator)


@Route("POST /v1/clock/start", Permission.OPERATE, answer=CLOCK_SHAPE, form=EMPTY)
async def start_clock(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """Start a stopped clock."""
    emulator.pace.start()
    return _clock(emulator)


# --- scenarios ---------------------------------------------------------------------------------


def _run_form(run: Run | None) -> dict[str, object] | None:
    if run is None:
        return None
    numbers = sorted(number for of_label in run.operations.by_label.values() for number in of_label)
    return {
        "state": run.state.value if run.over else RunState.RUNNING.value,
        "vm": run.stage.vm,
        "started": timestamps.iso8601(run.started_ms),
        "steps_done": run.done,
        "steps": len(run.scenario.steps),
        "problem": run.problem or None,
        "operations": [f"op-{number}" for number in numbers],
        "maintenances": [f"m-{number}" for number in run.maintenances.numbers.values()],
    }


def _scenario_form(emulator: Emulator, scenario: Scenario) -> dict[str, object]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "run": _run_form(emulator.runs.get(scenario.name)),
    }


def _is_built_in(name: str) -> bool:
    return name in {*scenario_files.shipped(), *scenario_files.unlisted()}


def _find_scenario(emulator: Emulator, name: str) -> Scenario:
    """Return a built-in scenario, or a scenario that a caller has sent and run."""
    if _is_built_in(name):
        return scenario_files.read_scenario(name, scenario_files.shipped_text(name))
    run = emulator.runs.get(name)
    if run is None:
        known = {*scenario_files.shipped(), *emulator.runs}
        raise scenario_files.ScenarioUnknown(name=name, near=nearest(name, known))
    return run.scenario


@Route("GET /v1/scenarios", Permission.READ_FLEET, answer=page_schema("scenarios", SCENARIO_SHAPE))
async def list_scenarios(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """List scenarios with their progress."""
    preview = emulator.settings.metadata.preview
    more = scenario_files.listed_if(scenario_files.PREVIEW) if preview else ()
    names = sorted({*scenario_files.shipped(), *more, *emulator.runs})
    forms = [_scenario_form(emulator, _find_scenario(emulator, name)) for name in names]
    return ApiResponse({"scenarios": forms})


@Route("GET /v1/scenarios/{name}", Permission.READ_FLEET, answer=STORY_SHAPE)
async def get_scenario(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Read one scenario."""
    name = call.path["name"]
    text = scenario_files.shipped_text(name) if _is_built_in(name) else None
    return ApiResponse({**_scenario_form(emulator, _find_scenario(emulator, name)), "text": text})


@Route(
    "POST /v1/scenarios/{name}/run", Permission.OPERATE, answer=SCENARIO_SHAPE, form=RUN, status=202
)
async def run_scenario(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Run a scenario."""
    name = NAME.read(call.path["name"], "the scenario's name")
    text = call.form.get("text")
    scenario = scenario_files.read_scenario(name, text) if text else _find_scenario(emulator, name)
    await emulator.run_scenario(scenario, call.form.get("vm", ""))
    return ApiResponse(_scenario_form(emulator, scenario), 202)


@Route("POST /v1/scenarios/{name}/stop", Permission.OPERATE, answer=SCENARIO_SHAPE, form=EMPTY)
async def stop_scenario(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Stop a scenario and undo its changes."""
    scenario = _find_scenario(emulator, call.path["name"])
    await emulator.stop_scenario(scenario.name)
    return ApiResponse(_scenario_form(emulator, scenario))


# --- faults ------------------------------------------------------------------------------------


def _faults(emulator: Emulator) -> ApiResponse:
    forms = [{"kind": spec.kind.value, "fault": str(spec)} for spec in emulator.faults.specs()]
    return ApiResponse({"faults": forms})


@Route("GET /v1/faults", Permission.READ_FLEET, answer=_FAULTS)
async def list_faults(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """List the active faults."""
    return _faults(emulator)


@Route("POST /v1/faults", Permission.OPERATE, answer=_FAULTS, form=FAULT)
async def set_fault(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Set or replace a fault of a kind."""
    emulator.set_fault(read_fault(call.form["fault"]))
    return _faults(emulator)


@Route("DELETE /v1/faults/{kind}", Permission.OPERATE, answer=_FAULTS)
async def clear_fault(emulator: Emulator, call: ApiCall) -> ApiResponse:
    """Clear a fault."""
    try:
        kind = FaultKind(call.path["kind"])
    except ValueError as error:
        raise FaultNotSet(kind=call.path["kind"]) from error
    emulator.faults.clear(kind)
    emulator.faults_changed()
    return _faults(emulator)


@Route("DELETE /v1/faults", Permission.OPERATE, answer=_FAULTS)
async def clear_faults(emulator: Emulator, _: ApiCall) -> ApiResponse:
    """Clear all faults."""
    emulator.faults.clear()
    emulator.faults_changed()
    return _faults(emulator)
