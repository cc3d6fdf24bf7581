"""The emulator's own routes of the operator API: clock, scenarios, faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api.request_forms import EMPTY
from forewarn.api.routes import ApiCall, ApiResponse, Route, list_page_schema
from forewarn.clock import SPEED_MAX
from forewarn.emulator import scenario_files
from forewarn.emulator.attested_documents import ISSUER_PATH
from forewarn.emulator.faults import FaultKind, FaultNotSet, read_fault
from forewarn.emulator.options import ADVANCE_S_MAX
from forewarn.emulator.scenario_runner import RunState
from forewarn.errors import nearest
from forewarn.protocol import timestamps
from forewarn.validation.fields import NAME, Duration, Number, Schema, Text
from forewarn.validation.forms import Field, Form
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forewarn.emulator.emulator import Emulator
    from forewarn.emulator.scenario import Scenario
    from forewarn.emulator.scenario_runner import Run

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

_TEXT: Schema = {"type": "string"}
_NULLABLE: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


CLOCK_SHAPE = _object(now=_TEXT, speed={"type": "number"}, stopped={"type": "boolean"})
RUN_SHAPE = _object(
    state={"type": "string", "enum": [state.value for state in RunState]},
    vm=_TEXT,
    started=_TEXT,
    steps_done=_COUNT,
    steps=_COUNT,
    problem=_NULLABLE,
    operations={"type": "array", "items": _TEXT},
    maintenances={"type": "array", "items": _TEXT},
)
SCENARIO_SHAPE = _object(
    name=_TEXT, title=_TEXT, about=_TEXT, run={"anyOf": [RUN_SHAPE, {"type": "null"}]}
)
STORY_SHAPE = _object(
    name=_TEXT,
    title=_TEXT,
    about=_TEXT,
    run={"anyOf": [RUN_SHAPE, {"type": "null"}]},
    text=_NULLABLE,
)
FAULT_SHAPE = _object(kind=_TEXT, fault=_TEXT)


def routes_of(emulator: Emulator) -> Sequence[Route]:
    """Return the routes of an emulator."""

    def act(
        handler: Callable[[Emulator, ApiCall], Awaitable[ApiResponse]],
    ) -> Callable[[ApiCall], Awaitable[ApiResponse]]:
        async def answer(call: ApiCall) -> ApiResponse:
            return await handler(emulator, call)

        return answer

    async def issuer(_: ApiCall) -> ApiResponse:
        return ApiResponse(emulator.attested.issuer(), media=CERTIFICATE)

    return (
        Route(
            method="GET",
            path=ISSUER_PATH,
            name="get_attested_issuer",
            summary="Read the CA certificate of attested documents.",
            act=issuer,
            answer=None,
            gives=(CERTIFICATE,),
        ),
        *(
            Route(
                method=row.method,
                path=row.path,
                name=row.name,
                summary=row.summary,
                act=act(row.handler),
                answer=row.answer,
                form=row.form,
                status=row.status,
            )
            for row in _rows()
        ),
    )


# --- clock -------------------------------------------------------------------------------------


def _clock(emulator: Emulator) -> ApiResponse:
    clock = emulator.pace
    shown = timestamps.iso8601(clock.now_ms())
    return ApiResponse({"now": shown, "speed": clock.speed, "stopped": clock.stopped})


async def _show_clock(emulator: Emulator, _: ApiCall) -> ApiResponse:
    return _clock(emulator)


async def _advance(emulator: Emulator, call: ApiCall) -> ApiResponse:
    await emulator.pacing.advance(call.form["by"] * 1000)
    return _clock(emulator)


async def _speed(emulator: Emulator, call: ApiCall) -> ApiResponse:
    await emulator.set_speed(call.form["speed"])
    return _clock(emulator)


async def _stop_clock(emulator: Emulator, _: ApiCall) -> ApiResponse:
    emulator.pace.stop()
    return _clock(emulator)


async def _start_clock(emulator: Emulator, _: ApiCall) -> ApiResponse:
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


def _known(emulator: Emulator, name: str) -> Scenario:
    """Return a built-in scenario, or a scenario that a caller has sent and run."""
    if name in scenario_files.shipped():
        return scenario_files.read_scenario(name, scenario_files.shipped_text(name))
    run = emulator.runs.get(name)
    if run is None:
        known = {*scenario_files.shipped(), *emulator.runs}
        raise scenario_files.ScenarioUnknown(name=name, near=nearest(name, known))
    return run.scenario


async def _list_scenarios(emulator: Emulator, _: ApiCall) -> ApiResponse:
    names = sorted({*scenario_files.shipped(), *emulator.runs})
    forms = [_scenario_form(emulator, _known(emulator, name)) for name in names]
    return ApiResponse({"scenarios": forms})


async def _show_scenario(emulator: Emulator, call: ApiCall) -> ApiResponse:
    name = call.path["name"]
    text = scenario_files.shipped_text(name) if name in scenario_files.shipped() else None
    return ApiResponse({**_scenario_form(emulator, _known(emulator, name)), "text": text})


async def _run_scenario(emulator: Emulator, call: ApiCall) -> ApiResponse:
    name = NAME.read(call.path["name"], "the scenario's name")
    text = call.form.get("text")
    scenario = scenario_files.read_scenario(name, text) if text else _known(emulator, name)
    await emulator.run_scenario(scenario, call.form.get("vm", ""))
    return ApiResponse(_scenario_form(emulator, scenario), 202)


async def _stop_scenario(emulator: Emulator, call: ApiCall) -> ApiResponse:
    scenario = _known(emulator, call.path["name"])
    await emulator.stop_scenario(scenario.name)
    return ApiResponse(_scenario_form(emulator, scenario))


# --- faults ------------------------------------------------------------------------------------


def _faults(emulator: Emulator) -> ApiResponse:
    forms = [{"kind": spec.kind.value, "fault": str(spec)} for spec in emulator.faults.specs()]
    return ApiResponse({"faults": forms})


async def _list_faults(emulator: Emulator, _: ApiCall) -> ApiResponse:
    return _faults(emulator)


async def _set_fault(emulator: Emulator, call: ApiCall) -> ApiResponse:
    emulator.set_fault(read_fault(call.form["fault"]))
    return _faults(emulator)


async def _clear_fault(emulator: Emulator, call: ApiCall) -> ApiResponse:
    try:
        kind = FaultKind(call.path["kind"])
    except ValueError as error:
        raise FaultNotSet(kind=call.path["kind"]) from error
    emulator.faults.clear(kind)
    emulator.faults_changed()
    return _faults(emulator)


async def _clear_faults(emulator: Emulator, _: ApiCall) -> ApiResponse:
    emulator.faults.clear()
    emulator.faults_changed()
    return _faults(emulator)


# --- the table ---------------------------------------------------------------------------------


@value
class _Row:
    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[Emulator, ApiCall], Awaitable[ApiResponse]]
    answer: Schema
    form: Form | None = None
    status: int = 200


def _rows() -> tuple[_Row, ...]:
    clock, story = "/v1/clock", "/v1/scenarios/{name}"
    faults = list_page_schema("faults", FAULT_SHAPE)
    every = list_page_schema("scenarios", SCENARIO_SHAPE)
    return (
        _Row("GET", clock, "get_clock", "Show the emulator's clock.", _show_clock, CLOCK_SHAPE),
        _Row("POST", f"{clock}/advance", "advance_clock",
            "Move the clock forward; return after all effects.",
            _advance, CLOCK_SHAPE, ADVANCE),
        _Row("POST", f"{clock}/speed", "set_clock_speed", "Run the clock at another speed.",
            _speed, CLOCK_SHAPE, SPEED),
        _Row("POST", f"{clock}/stop", "stop_clock", "Stop the clock.", _stop_clock,
            CLOCK_SHAPE, EMPTY),
        _Row("POST", f"{clock}/start", "start_clock", "Start a stopped clock.", _start_clock,
            CLOCK_SHAPE, EMPTY),
        _Row("GET", "/v1/scenarios", "list_scenarios", "List scenarios with their progress.",
            _list_scenarios, every),
        _Row("GET", story, "get_scenario", "Read one scenario.", _show_scenario, STORY_SHAPE),
        _Row("POST", f"{story}/run", "run_scenario", "Run a scenario.",
            _run_scenario, SCENARIO_SHAPE, RUN, 202),
        _Row("POST", f"{story}/stop", "stop_scenario",
            "Stop a scenario and undo its changes.", _stop_scenario,
            SCENARIO_SHAPE, EMPTY),
        _Row("GET", "/v1/faults", "list_faults", "List the active faults.", _list_faults, faults),
        _Row("POST", "/v1/faults", "set_fault", "Set or replace a fault of a kind.",
            _set_fault, faults, FAULT),
        _Row("DELETE", "/v1/faults/{kind}", "clear_fault", "Clear a fault.",
            _clear_fault, faults),
        _Row("DELETE", "/v1/faults", "clear_faults", "Clear all faults.",
            _clear_faults, faults),
    )  # fmt: skip
