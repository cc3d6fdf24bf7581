"""The OpenAPI document as an HTML page, without scripts or external files.

Each route is a card with its parameters, body and answers. The referenced schemas follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Forewarn operator API</title>
<link rel="icon" href="/web/mark.svg" type="image/svg+xml">
<link rel="stylesheet" href="/web/page.css">
</head>
<body>
<main>
<h1>Forewarn operator API</h1>
<p>Programs read the same content as <a href="/v1/openapi.json">OpenAPI document</a>.</p>"""


def html_page(document: Json) -> str:
    """Return the page of an OpenAPI document."""
    by_tag: dict[str, list[str]] = {}
    for path, routes in document["paths"].items():
        for method, route in routes.items():
            by_tag.setdefault(route["tags"][0], []).append(_route(path, method, route))
    links = " ".join(f'<a href="#tag-{escape(tag)}">{escape(tag)}</a>' for tag in by_tag)
    parts = [_HEAD, f'<p>{links} <a href="#schemas">schemas</a></p>']
    for tag, cards in by_tag.items():
        parts += [f'<h2 id="tag-{escape(tag)}">{escape(tag)}</h2>', *cards]
    parts.append('<h2 id="schemas">schemas</h2>')
    parts += [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    return "\n".join([*parts, "</main>", "</body>", "</html>", ""])


def _route(path: str, method: str, route: Json) -> str:
    parts = [f"<h3>{method.upper()} <code>{escape(path)}</code></h3>"]
    parts.append(f"<p>{escape(route['summary'])} {escape(route['description'])}</p>")
    if route["parameters"]:
        parts.append(_table((each["name"], each, each["schema"]) for each in route["parameters"]))
    if "requestBody" in route:
        parts.append(f"<p>Takes {_content(route['requestBody'])}.</p>")
    for status, schema in route["responses"].items():
        if status.isdigit():
            meaning = schema["description"].removesuffix("Done.")
            shown = (f"Answers {status}", _content(schema), escape(meaning).removesuffix("."))
            parts.append(f"<p>{': '.join(filter(None, shown))}.</p>")
    return _card(route["operationId"], parts)


def _schema(name: str, schema: Json) -> str:
    required = schema.get("required", ())
    rows = [
        (member, {**of, "required": member in required}, of)
        for member, of in schema.get("properties", {}).items()
    ]
    meaning = f"<p>{escape(schema.get('description', ''))}</p>"
    return _card(name, [f"<h3>{escape(name)}</h3>", meaning, _table(rows)])


def _card(anchor: str, parts: Iterable[str]) -> str:
    return f'<section class="card" id="{escape(anchor)}">{"".join(parts)}</section>'


def _table(rows: Iterable[tuple[str, Json, Json]]) -> str:
    return f"<table>{''.join(_row(*row) for row in rows)}</table>"


def _row(name: str, of: Json, schema: Json) -> str:
    where = [of["in"]] if "in" in of else []
    kind = " ".join([*where, "required" if of["required"] else "optional"])
    meaning = escape(" ".join([of.get("description", ""), *_bounds(schema)]).strip())
    for word in schema.get("oneOf", ()):
        meaning += f"<br><code>{escape(word['const'])}</code>: {escape(word['description'])}"
    cells = (f"<code>{escape(name)}</code>", f'<span class="soft">{kind}</span>', _type(schema))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in (*cells, meaning))}</tr>"


def _bounds(schema: Json) -> Iterator[str]:
    if "enum" in schema:
        yield f"One of {', '.join(map(str, schema['enum']))}."
    if "minimum" in schema and "maximum" in schema:
        yield f"From {schema['minimum']} to {schema['maximum']}."
    if "default" in schema:
        yield f"Default: {schema['default']}."


def _content(body: Json) -> str:
    content = body.get("content", {}).items()
    return " or ".join(f"{_type(of['schema'])} as {escape(media)}" for media, of in content)


def _type(schema: Json) -> str:
    """Return the type of a schema; for an unnamed schema, also the types of its members."""
    if schema.get("properties"):
        return ", ".join(
            f"{escape(name)}: {_name(of)}" for name, of in schema["properties"].items()
        )
    return " or ".join(_name(each) for each in schema.get("anyOf", [schema]))


def _name(schema: Json) -> str:
    lists = ""
    while schema.get("type") == "array":
        lists, schema = f"{lists}list of ", schema["items"]
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'{lists}<a href="#{name}">{name}</a>'
    kind = schema.get("type", "any")
    return lists + escape(" or ".join(kind) if isinstance(kind, list) else kind)
