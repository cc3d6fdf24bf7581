"""The audit route: records with their hash chain, for independent verification. Source: P-7."""

from __future__ import annotations

from forewarn_base.validation.fields import Integer
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_server.api import schemas
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_store import Store
from forewarn_store.audit import AuditEntry

#: Records on one page.
PAGE_MAX = 10_000

AUDIT: schemas.ObjectSchema[AuditEntry] = schemas.ObjectSchema(
    "AuditRecord",
    "A change or a refusal of a call.",
    schemas.Member("sequence", schemas.WHOLE, "seq", "Number of the record: from 1, without gaps."),
    schemas.Member("at_ms", schemas.WHOLE, "record.at_ms", "Since 1970, UTC."),
    schemas.Member("at", schemas.TIME, "record.at_ms"),
    schemas.Member("principal", schemas.TEXT, "record.principal"),
    schemas.Member(
        "token",
        schemas.TEXT,
        "record.token",
        "Id of the caller's token; empty: a login, a certificate, a local user or nobody.",
    ),
    schemas.Member("address", schemas.TEXT, "record.address"),
    schemas.Member("request", schemas.TEXT, "record.request"),
    schemas.Member("object", schemas.TEXT, "record.object"),
    schemas.Member("outcome", schemas.TEXT, "record.outcome", "`done`, or the code of the error."),
    schemas.Member("digest", schemas.TEXT, meaning="Hash of this record and all earlier ones."),
    schemas.Member(
        "signature",
        schemas.TEXT,
        meaning="Signature of the record; empty if the service has no signing key.",
    ),
)


@Route(
    "GET /v1/audit",
    Permission.ADMINISTER,
    query=(
        Field(
            "after", Integer(), "Only records with a higher number (default: the newest records)."
        ),
        Field("limit", Integer(1, PAGE_MAX), "Maximum number of records (default: 100)."),
    ),
    answer=schemas.page_schema("records", AUDIT.schema(), paged="integer"),
)
async def list_audit(call: ApiCall) -> ApiResponse:
    """List audit records: changes and refused calls."""
    limit = call.query.get("limit", 100)

    def page(store: Store) -> list[AuditEntry]:
        if "after" in call.query:
            return store.audit.page(call.query["after"], limit)
        return store.audit.newest(limit)

    records = await call.control.look_up(page)
    following = records[-1].seq if len(records) == limit and "after" in call.query else None
    return await call.encode(lambda: {"records": AUDIT.each(records), "next": following})
