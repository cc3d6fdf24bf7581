"""The OpenAPI document, built from the routes, forms and schemas that serve the API."""

from __future__ import annotations

import re
from collections.abc import Iterable

from forewarn_base.validation.fields import Schema
from forewarn_base.validation.forms import Field, Form
from forewarn_base.validation.json_reader import JSON
from forewarn_server.api import (
    access_routes,
    audit_routes,
    availability_routes,
    confirmation_routes,
    consent,
    declaration_routes,
    maintenance_schemas,
    policy_file,
    promise_routes,
    schemas,
    ticket_routes,
)
from forewarn_server.api import request_forms as forms
from forewarn_server.api.routes import Route

_ERROR: Schema = schemas.described(
    schemas.object_schema(
        error=schemas.object_schema(code=schemas.TEXT, message=schemas.TEXT, advice=schemas.TEXT)
    ),
    "An error: a stable code, the reason, and a remedy.",
)
_REFUSED: Schema = {
    "description": "Refused; nothing was changed.",
    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
}


#: Descriptions of path parameters that are not names.
_PATH_NAMES = {
    "operations": "Operation (op-12), event id, or beginning of an event id.",
    "events": "Operation (op-12), event id, or beginning of an event id.",
    "maintenances": "m-12, or 12.",
    "declarations": "m-12, or 12.",
    "tickets": "t-12, or 12.",
    "faults": "Kind of the scenario, such as slow-first.",
}


def document(routes: Iterable[Route], version: str) -> dict[str, object]:
    """Return the OpenAPI 3.1 document of these routes."""
    routes = tuple(routes)
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forewarn operator API",
            "version": version,
            "description": "Operators' actions on hosts, VMs, events and history.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(routes),
        },
    }


def _schemas(routes: Iterable[Route]) -> dict[str, Schema]:
    definitions: dict[str, Schema] = {"Error": _ERROR}
    definitions |= {route.form.name: route.form.definition() for route in routes if route.form}
    modules = (forms, policy_file, schemas, maintenance_schemas, consent)
    routed = (access_routes, audit_routes, availability_routes, confirmation_routes)
    for module in (*modules, *routed, declaration_routes, promise_routes, ticket_routes):
        for each in vars(module).values():
            if isinstance(each, Form | schemas.ObjectSchema):
                definitions[each.name] = each.definition()
    definitions |= {form.name: form.definition() for _, form in policy_file.table_forms()}
    return dict(sorted(definitions.items()))


def _operation(route: Route) -> dict[str, object]:
    names = re.findall(r"{(\w+)}", route.path)
    described: dict[str, object] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"Required permission: {route.permission.value}.",
        "tags": [route.path.removeprefix("/v1").split("/")[1]],
        "parameters": [_path_parameter(name, route.path) for name in names]
        + [_query_parameter(each) for each in route.query],
        "responses": _responses(route),
    }
    if route.form is not None:
        required = route.method == "PUT" or any(each.required for each in route.form.fields)
        content = {JSON: {"schema": route.form.schema()}}
        described["requestBody"] = {"required": required, "content": content}
    elif route.takes:
        schema = route.taken or {"type": "object"}
        content = {media: {"schema": schema} for media in route.takes}
        described["requestBody"] = {"required": True, "content": content}
    if route.public:
        described["security"] = [{}]
    return described


def _path_parameter(name: str, path: str) -> dict[str, object]:
    meaning = _PATH_NAMES.get(path.split("/")[2], "Its name.")
    schema: Schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}


def _query_parameter(each: Field) -> dict[str, object]:
    schema = each.kind.schema()
    described: dict[str, object] = {
        "name": each.name,
        "in": "query",
        "required": each.required,
        "description": each.meaning,
        "schema": schema,
    }
    if schema.get("type") == "array":
        described |= {"style": "form", "explode": False}
    return described


def _responses(route: Route) -> dict[str, object]:
    answers: dict[str, object] = {}
    for status, meaning in {route.status: "Done.", **route.also}.items():
        answers[str(status)] = {"description": meaning, **_content(route)}
    return {**answers, "4XX": _REFUSED, "5XX": _REFUSED}


def _content(route: Route) -> dict[str, object]:
    if route.answer is None and route.gives == (JSON,):
        return {}
    schema: Schema = route.answer or {"type": "string"}
    schemas = {media: {"schema": schema} for media in route.gives}
    return {"content": schemas}
