"""Login: cloud discovery, OpenID configuration, and tokens in the form of ADFS. Source: Z-3.

With ADFS, Azure's tools authenticate only with this server.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from forewarn_azure.json_values import JsonObject
from forewarn_azure.routes import ArmCall, ArmResponse, ArmRoutes
from forewarn_base.clock import SystemClock
from forewarn_core.access.roles import Permission
from forewarn_metadata.tokens import TokenWrong
from forewarn_server.adfs_tokens import LIFETIME_S

ADFS = "/adfs"
TOKEN_PATH = f"{ADFS}/oauth2/token"
_V2_TOKEN_PATH = f"{ADFS}/{{tenant}}/oauth2/v2.0/token"
_OPENID = ".well-known/openid-configuration"
#: Maximum number of fields of a form; msal sends about ten.
_FIELDS_MAX = 50
_NO_STORE = {"Cache-Control": "no-store"}
ROUTES = ArmRoutes(Permission.PUBLIC)


@ROUTES.serve("GET /metadata/endpoints")
async def _endpoints(call: ArmCall) -> ArmResponse:
    """Discover the cloud.

    `az cloud register` calls the route; api-versions before 2022 expect a list of clouds.
    """
    base = call.base
    cloud: JsonObject = {
        "name": "Forewarn",
        "portal": base,
        "gallery": base,
        "graph": base,
        "graphAudience": base,
        "resourceManager": base,
        "authentication": {
            "loginEndpoint": f"{base}{ADFS}",
            "audiences": [base],
            "tenant": "adfs",
            "identityProvider": "ADFS",
        },
        "galleryEndpoint": base,
        "graphEndpoint": base,
        "portalEndpoint": base,
        "media": base,
        "batch": base,
        "sqlManagement": base,
        "vmImageAliasDoc": f"{base}/aliases.json",
        "activeDirectoryDataLake": base,
        "microsoftGraphResourceId": base,
        "suffixes": {
            "storage": "storage.invalid",
            "keyVaultDns": "vault.invalid",
            "acrLoginServer": "azurecr.invalid",
            "sqlServerHostname": "database.invalid",
        },
    }
    listed = "2016" < call.api_version < "2022"
    return ArmResponse([cloud] if listed else cloud)


@ROUTES.serve(f"GET {ADFS}/{{tenant}}/v2.0/{_OPENID}", summary="Resolve the tenant")
@ROUTES.serve(f"GET {ADFS}/{_OPENID}")
async def _configuration(call: ArmCall) -> ArmResponse:
    """Discover the login."""
    base = f"{call.base}{ADFS}"
    return ArmResponse(
        {
            "issuer": base,
            "authorization_endpoint": f"{base}/oauth2/authorize",
            "token_endpoint": f"{call.base}{TOKEN_PATH}",
            "device_authorization_endpoint": f"{base}/oauth2/devicecode",
            "jwks_uri": f"{base}/discovery/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "response_types_supported": ["code", "id_token", "token"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["client_credentials"],
            "subject_types_supported": ["pairwise"],
            "scopes_supported": ["openid", "user_impersonation"],
            "id_token_signing_alg_values_supported": ["HS256"],
        }
    )


@ROUTES.serve(f"GET {ADFS}/discovery/keys")
async def _keys(_call: ArmCall) -> ArmResponse:
    """List signing keys (always empty)."""
    return ArmResponse({"keys": []})


@ROUTES.serve(f"POST {_V2_TOKEN_PATH}", summary="Get a token, for clients of version 2.0")
@ROUTES.serve(f"POST {TOKEN_PATH}")
async def _token(call: ArmCall) -> ArmResponse:
    """Get a token for a name and a secret."""
    try:
        fields = parse_qs(call.body.decode(), max_num_fields=_FIELDS_MAX)
    except ValueError:
        return _refused("invalid_request", "the form cannot be read", 400)
    given = {name: values[-1] for name, values in fields.items()}
    if given.get("grant_type") != "client_credentials":
        reason = "log in with --service-principal: the grant must be client_credentials"
        return _refused("unsupported_grant_type", reason, 400)
    name, secret = given.get("client_id", ""), given.get("client_secret", "")
    if not name or not name.isprintable() or len(name) > 64:
        return _refused("invalid_request", "client_id must have 1 to 64 characters", 400)
    try:
        subject = call.admit(name, secret)
    except TokenWrong:
        return _refused("invalid_client", "the client secret is wrong", 401)
    resource = given.get("resource") or given.get("scope", "").removesuffix("/.default")
    audience = (resource or call.base)[:256]
    issuer = f"{call.base}{ADFS}"
    now_s = SystemClock().now_ms() // 1000
    return ArmResponse(
        {
            "token_type": "Bearer",
            "expires_in": LIFETIME_S,
            "ext_expires_in": LIFETIME_S,
            "expires_on": now_s + LIFETIME_S,
            "not_before": now_s,
            "resource": audience,
            "access_token": call.tokens.issue(subject, audience=audience, issuer=issuer),
        },
        headers=_NO_STORE,
    )


def _refused(error: str, description: str, status: int) -> ArmResponse:
    """Return an error in the form of OAuth 2.0 (RFC 6749, section 5.2)."""
    body = {"error": error, "error_description": description}
    return ArmResponse(body, status, _NO_STORE)
