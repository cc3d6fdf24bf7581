"""Writes the reference page of the operator API from its OpenAPI document.

No path may be described in here; its route says what it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from forewarn.api import outbox_routes
from forewarn.api.app import every_route
from forewarn.api.openapi import document as openapi_document
from forewarn.core.actions import ACTIONS
from forewarn.emulator.routes import routes_of
from forewarn.validation.fields import WHOLE_MAX
from tools.docs.reference import page, table

if TYPE_CHECKING:
    from forewarn.emulator.emulator import Emulator

Json: TypeAlias = dict[str, Any]


def api_page() -> str:
    """Return every path of the operator API, and the shapes of what it takes and gives."""
    nobody = cast("Emulator", None)  # an emulator's routes need it only once they are called
    document: Json = openapi_document(
        every_route((*routes_of(nobody), *outbox_routes.routes(None))), "v1"
    )
    lines = [
        f"{document['info']['description']}",
        "The paths of clock, scenarios and faults are the emulator's; the others are everywhere.",
        "A running service gives the same as an OpenAPI document at `GET /v1/openapi.json`.",
        "",
        "Every request carries `Authorization: Bearer TOKEN`, but to the emulator.",
        "What is refused is answered with the shape `Error`; its codes are in [errors](errors.md).",
        "",
        "Records have no versions: a change with `If-Match` or another condition is answered 412.",
        "Work that is under way on a VM, or as an order, is refused with 409 if asked for again.",
        "With `queue`, routine work waits instead.",
        "A `PUT` replaces a record whole and needs a body; with `new=true` it only adds one.",
    ]
    for tag, operations in by_tag(document["paths"]).items():
        lines += ["", f"## {tag.capitalize()}"]
        for method, path, operation in operations:
            lines += ["", f"### {method.upper()} {path}", "", *described(operation)]
    lines += ["", "## Shapes"]
    for name, schema in document["components"]["schemas"].items():
        lines += ["", f"### {name}", "", *shape(schema)]
    lines += ["", "## Actions", "", "The entries of history, by their stable names.", ""]
    lines += table(("action", "meaning"), ((f"`{name}`", text) for name, text in ACTIONS.items()))
    return page("Operator API", *lines)


def by_tag(paths: Json) -> dict[str, list[tuple[str, str, Json]]]:
    """Return method, path and operation of all routes by their first tag, in their order."""
    found: dict[str, list[tuple[str, str, Json]]] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            found.setdefault(operation["tags"][0], []).append((method, path, operation))
    return found


def described(operation: Json) -> Iterator[str]:
    """Yield what one route does, takes and answers."""
    yield operation["summary"]
    rows = [parameter_row(one) for one in operation.get("parameters", ())]
    if rows:
        yield ""
        yield from table(("parameter", "in", "type", "meaning"), rows)
    if "requestBody" in operation:
        yield ""
        yield f"Takes {media_of(operation['requestBody'])}."
    yield ""
    for status, answer in operation["responses"].items():
        if status.isdigit():
            shown = ", ".join(filter(None, (status, media_of(answer))))
            also = answer["description"].removesuffix("Done.")
            yield f"Answers {shown}{': ' + also if also else '.'}"


def media_of(body: Json) -> str:
    """Return the shapes and media types of a body; nothing where there is none."""
    parts = []
    for media, content in body.get("content", {}).items():
        plain = type_of(content["schema"])
        parts.append(f"`{media}`" if plain == "string" else f"{plain} as `{media}`")
    return " or ".join(parts)


def parameter_row(one: Json) -> tuple[str, str, str, str]:
    """Return one row of the table of parameters."""
    name = f"`{one['name']}`" + (" (required)" if one.get("required") else "")
    return name, one["in"], parameter_type(one["schema"]), one.get("description", "")


def parameter_type(schema: Json) -> str:
    """Return a parameter's type in words, as a path or query has it."""
    if schema.get("type") == "array":
        return f"{type_of(schema['items'])}, several separated by commas"
    if schema.get("maximum", WHOLE_MAX) < WHOLE_MAX:
        return f"integer from {schema['minimum']} to {schema['maximum']}"
    return type_of(schema)


def shape(schema: Json) -> Iterator[str]:
    """Yield the members of a shape."""
    yield schema.get("description", "")
    members = schema.get("properties", {})
    if members:
        required = set(schema.get("required", ()))
        yield ""
        yield from table(
            ("member", "type", "meaning"),
            (
                (f"`{name}`{'' if name in required else ' (optional)'}", type_of(one), meaning(one))
                for name, one in members.items()
            ),
        )


def meaning(schema: Json) -> str:
    """Return what a member means, with its words or bounds where it has some."""
    parts = [schema.get("description", "")]
    if schema.get("enum"):
        parts.append("One of " + ", ".join(f"`{word}`" for word in schema["enum"]) + ".")
    if "default" in schema:
        parts.append(f"Default `{schema['default']}`.")
    return " ".join(filter(None, parts))


def type_of(schema: Json) -> str:
    """Return a schema's type in words; a shape by its name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_of(schema['items'])}"
    if kind == "object" and schema.get("properties"):
        return "{" + ", ".join(members_of(schema["properties"])) + "}"
    if isinstance(kind, list):
        return " or ".join(kind)
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    formed = schema.get("format")
    return f"{kind} ({formed})" if formed else str(kind)


def members_of(properties: Json) -> Iterable[str]:
    """Return the members of an unnamed shape with their types."""
    return (f"{name}: {type_of(one)}" for name, one in properties.items())
