"""Tokens of an OpenID Connect issuer: forged ones, rotating keys, an issuer that is away."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt import jwk_set_cache

from forewarn_base.settings import OidcSettings, OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import Grant
from forewarn_server.api.oidc import IssuerTokenWrong, Oidc
from forewarn_server.api.sign_outs import SignOuts
from tests.api.issuer import CLIENT, NOW_S, Issuer
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live, rereading
from tests.asking import Reply
from tests.waiting import LIMIT_S, wait_until


@contextmanager
def serving() -> Iterator[tuple[Live, Issuer]]:
    """Yield a service that accepts an issuer's tokens; its group sre are operators."""
    issuer = Issuer()
    oidc = OidcSettings(issuer=issuer.url, client_id=CLIENT)
    settings = replace(SETTINGS, operator=OperatorSettings(), oidc=oidc)
    service = Live(settings, hooks=rereading(lambda: replace(settings, oidc=OidcSettings())))
    grant(service, "group:sre", Role.OPERATOR)
    yield service, issuer
    service.stop()
    issuer.stop()


@pytest.fixture
def both() -> Iterator[tuple[Live, Issuer]]:
    """A service and an issuer of the test's own."""
    with serving() as started:
        yield started


@pytest.fixture
def live(both: tuple[Live, Issuer]) -> Live:
    """The service."""
    return both[0]


@pytest.fixture
def issuer(both: tuple[Live, Issuer]) -> Issuer:
    """The issuer."""
    return both[1]


@pytest.fixture(scope="module")
def attacked() -> Iterator[tuple[Live, Issuer]]:
    """A service and an issuer for all attacks."""
    with serving() as started:
        yield started


def grant(live: Live, principal: str, role: Role, owner: str = "") -> None:
    """Give a role to a principal."""
    live.daemon.control.submit(Grant(principal, role, owner), "test").result(LIMIT_S)


def ask(live: Live, token: str, path: str = "/v1/whoami") -> Reply:
    """Return the answer to a call with a token."""
    return live.call("GET", path, headers={"Authorization": f"Bearer {token}"})


def test_token_names_its_user_with_the_roles_of_the_groups(live: Live, issuer: Issuer) -> None:
    """A person has their own roles and those of their groups, and no others."""
    grant(live, "oidc:kim", Role.OWNER, "shop")
    grant(live, "group:dba", Role.ADMIN)
    shown = ask(live, issuer.token()).json
    assert shown["principal"] == "oidc:kim"
    assert {(b["role"], b["owner"]) for b in shown["bindings"]} == {
        ("operator", ""),
        ("owner", "shop"),
    }


def part(value: object) -> str:
    """Return one part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def hs256_with_public_key(issuer: Issuer) -> str:
    """Algorithm confusion: the published key as a shared secret."""
    ((key_id, key),) = issuer.keys.items()
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = f"{part({'alg': 'HS256', 'kid': key_id})}.{part(issuer.claims())}"
    mac = hmac.new(pem, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def unsigned(issuer: Issuer, algorithm: str = "none") -> str:
    """No signature."""
    ((key_id, _),) = issuer.keys.items()
    return f"{part({'alg': algorithm, 'kid': key_id})}.{part(issuer.claims())}."


def by_own_key(issuer: Issuer, **headers: object) -> str:
    """Signed with a key that the token itself brings, or points to."""
    ((key_id, _),) = issuer.keys.items()
    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(own.public_key(), as_dict=True)
    named = {"kid": key_id, "jwk": {**jwk, "kid": key_id}, "jku": f"{issuer.url}/mine", **headers}
    return jwt.encode(issuer.claims(), own, "RS256", named)


def changed(token: str) -> str:
    """Other claims under the same signature."""
    head, claims, signature = token.split(".")
    read = json.loads(base64.urlsafe_b64decode(claims + "=="))
    return f"{head}.{part({**read, 'sub': 'root'})}.{signature}"


ATTACKS: dict[str, Json] = {
    "algorithm confusion": hs256_with_public_key,
    "none": unsigned,
    "None": lambda i: unsigned(i, "None"),
    "empty signature": lambda i: unsigned(i, "RS256"),
    "other algorithm of the same key": lambda i: jwt.encode(
        i.claims(), i.keys["key-1"], "PS256", {"kid": "key-1"}
    ),
    "own key in jwk": by_own_key,
    "own key, kid of a path": lambda i: by_own_key(i, kid="../../../../dev/null"),
    "own key, kid of SQL": lambda i: by_own_key(i, kid="x' UNION SELECT 'key"),
    "kid is a list": lambda _: f"{part({'alg': 'RS256', 'kid': ['key-1']})}.{part({})}.AA",
    "kid traversal": lambda i: i.token(headers={"kid": "../key-1"}),
    "unknown crit": lambda i: i.token(headers={"crit": ["exp2"], "exp2": 1}),
    "empty crit": lambda i: i.token(headers={"crit": []}),
    "unencoded payload": lambda i: i.token(headers={"crit": ["b64"], "b64": False}),
    "changed claims": lambda i: changed(i.token()),
    "wrong audience": lambda i: i.token(aud="other"),
    "no audience": lambda i: i.token(aud=None),
    "wrong issuer": lambda i: i.token(iss="https://issuer.example"),
    "issuer with another ending": lambda i: i.token(iss=i.url + "/"),
    "expired": lambda i: i.token(exp=NOW_S - 60),
    "no expiry": lambda i: i.token(exp=None),
    "expiry is a text": lambda i: i.token(exp="never"),
    "endless": lambda i: i.token(exp=float("inf")),
    "not yet valid": lambda i: i.token(nbf=NOW_S + 7000),
    "issued in the future": lambda i: i.token(iat=NOW_S + 7000),
    "no subject": lambda i: i.token(sub=None),
    "subject of two lines": lambda i: i.token(sub="kim\nroot"),
    "oversized": lambda i: i.token(more="x" * 16_384),
    "nested": lambda _: f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.e30.AA",
    "too many groups": lambda i: i.token(groups=["g"] * 1001),
    "for several, by another client": lambda i: i.token(aud=[CLIENT, "other"], azp="other"),
    "for several, by nobody": lambda i: i.token(aud=[CLIENT, "other"]),
    "by another client": lambda i: i.token(azp="other"),
    "access token by header": lambda i: i.token(headers={"typ": "at+jwt"}),
    "access token by media type": lambda i: i.token(headers={"typ": "application/at+jwt"}),
    "access token by claim": lambda i: i.token(typ="Bearer"),
    "access token by use": lambda i: i.token(token_use="access"),
    "logout token by header": lambda i: i.token(headers={"typ": "logout+jwt"}),
    "logout token by claim": lambda i: i.token(events={"backchannel-logout": {}}),
    "groups are an object": lambda i: i.token(groups={"sre": True}),
    "groups are a number": lambda i: i.token(groups=7),
    "issued at true": lambda i: i.token(iat=True),
    "encrypted": lambda _: f"{part({'alg': 'RSA-OAEP', 'enc': 'A256GCM'})}.AA.AA",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_forged_token_is_401(attacked: tuple[Live, Issuer], attack: str) -> None:
    """Only what the issuer signed for this service names anybody. Source: P-5."""
    live, issuer = attacked
    live.advance(61)  # after 20 wrong tokens a minute it reads none
    assert ask(live, issuer.token()).status == 200
    reply = ask(live, ATTACKS[attack](issuer))
    assert (reply.status, reply.code) == (401, "issuer-token-wrong")
    assert "/mine" not in issuer.asked


@pytest.mark.parametrize(
    ("claims", "named"),
    [
        ({"aud": "other"}, "`aud` does not name forewarn-test"),
        ({"aud": [CLIENT, "other"], "azp": "other"}, "`azp` is not forewarn-test"),
        ({"iss": "https://issuer.example"}, "`iss` is not http"),
        ({"exp": NOW_S - 60}, "`exp` is in the past"),
        ({"exp": None}, "`exp` is missing"),
        ({"exp": "never"}, "`exp` is not a time"),
        ({"groups": 7}, "`groups` is not a name or a list"),
        ({"typ": "Logout"}, "`typ` is not `ID`"),
        ({"sub": "two words"}, "`sub` is missing or not a name"),
    ],
)
def test_refusal_names_the_claim_of_the_issuers_token(
    attacked: tuple[Live, Issuer], claims: dict[str, object], named: str
) -> None:
    """A caller with a token of the issuer learns nothing from advice about our tokens."""
    live, issuer = attacked
    live.advance(61)
    error = ask(live, issuer.token(**claims)).json["error"]
    assert f"its claim {named}" in error["message"]
    assert issuer.url in error["message"]


@pytest.mark.parametrize(
    "more",
    [
        {"aud": [CLIENT]},
        {"aud": [CLIENT, "other"], "azp": CLIENT},
        {"typ": "ID", "headers": {"typ": "JWT"}},
        {"token_use": "id", "headers": {"typ": None}},
    ],
)
def test_id_token_for_this_client_is_accepted(
    attacked: tuple[Live, Issuer], more: dict[str, object]
) -> None:
    """Issuers write an audience as a list, and mark ID tokens in several ways."""
    live, issuer = attacked
    assert ask(live, issuer.token(**more)).status == 200


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        ("sre", "operator"),
        (["Domain Admins"], "viewer"),
        ([7, "sre", " padded", "x" * 300], "operator"),
        (None, ""),
        ([], ""),
    ],
)
def test_groups_are_a_list_one_name_or_none(
    attacked: tuple[Live, Issuer], groups: object, role: str
) -> None:
    """Issuers write them in these shapes; directories have group names with spaces. Source: P-5."""
    live, issuer = attacked
    headers = {"Authorization": f"Bearer {TOKEN}"}
    form = {"principal": "group:Domain Admins", "role": "viewer"}
    assert live.call("POST", "/v1/access/grant", form, headers=headers).status == 200
    token = jwt.encode({**issuer.claims(), "groups": groups}, issuer.keys["key-1"], "RS256")
    reply = ask(live, token)
    assert reply.status == 200
    assert [each["role"] for each in reply.json["bindings"]] == ([role] if role else [])


def test_principals_other_than_groups_have_no_spaces(live: Live) -> None:
    """An actor in history ends at a space."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for name in ("oidc:kim lee", "group: sre", "group:sre "):
        form = {"principal": name, "role": "viewer"}
        reply = live.call("POST", "/v1/access/grant", form, headers=headers)
        assert reply.code == "validation-failed"


def test_session_has_a_limit_though_its_token_has_none(live: Live, issuer: Issuer) -> None:
    """A token that expires in ten years counts for `max_session_s` from its issue. Source: P-5."""
    token = issuer.token(exp=NOW_S + 315_360_000)
    live.advance(43_100)
    assert ask(live, token).status == 200
    live.advance(200)
    assert ask(live, token).code == "issuer-token-wrong"
    old = issuer.token(jti="old", exp=NOW_S + 315_360_000)
    assert "`iat` is more than 43200 s" in ask(live, old).json["error"]["message"]


def test_only_key_needs_no_id(live: Live, issuer: Issuer) -> None:
    """An issuer with one key need not name it; OpenID Connect allows that."""
    unnamed = jwt.encode(issuer.claims(), issuer.keys["key-1"], "RS256")
    assert ask(live, unnamed).json["principal"] == "oidc:kim"


def test_keys_rotate(live: Live, issuer: Issuer) -> None:
    """A new key is fetched when it is first needed; the one it replaces no longer counts."""
    old = issuer.token()
    assert ask(live, old).status == 200
    issuer.rotate("key-2")
    live.advance(11)
    assert ask(live, issuer.token()).status == 200
    assert ask(live, old).code == "issuer-token-wrong"


def test_withdrawn_key_ends_tokens_in_use(live: Live, issuer: Issuer) -> None:
    """Keys are read again every ten minutes, though no new one is needed."""
    token = issuer.token()
    assert ask(live, token).status == 200
    issuer.rotate("key-2")
    live.advance(601)
    wait_until(lambda: ask(live, token).status == 401)


def test_issuer_that_is_away_logs_nobody_out_early(live: Live, issuer: Issuer) -> None:
    """Tokens count for an hour without the issuer, also ones that come first then; and expire."""
    ask(live, issuer.token())
    issuer.stop()
    for _ in range(7):
        live.advance(600)
        assert ask(live, issuer.token()).status == 200
    assert ask(live, issuer.token(jti="new")).status == 200
    live.advance(3100)
    assert ask(live, issuer.token()).code == "issuer-token-wrong"
    issuer.resume()


def test_issuer_that_publishes_no_key_logs_nobody_out(live: Live, issuer: Issuer) -> None:
    """What it published before stays in force until it answers usably."""
    token = issuer.token()
    assert ask(live, token).status == 200
    issuer.keys = {}

    def is_asked_again(times: int) -> bool:
        assert ask(live, token).status == 200  # begins a fetch, unless one goes on
        return issuer.asked.count("/keys") == times

    for times in (2, 3):
        live.advance(601)
        wait_until(partial(is_asked_again, times))


def test_keys_count_no_longer_than_the_longest_session(
    live: Live, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token that was valid before an outage outlives them; PyJWT keeps them that long."""
    assert ask(live, issuer.token()).status == 200
    issuer.stop()
    later = time.monotonic() + 43_201
    monkeypatch.setattr(jwk_set_cache, "time", SimpleNamespace(monotonic=lambda: later))
    assert ask(live, issuer.token()).code == "issuer-unavailable"
    issuer.resume()
    live.advance(11)
    monkeypatch.undo()
    assert ask(live, issuer.token()).status == 200


def test_key_that_nobody_can_be_asked_about_is_503(live: Live, issuer: Issuer) -> None:
    """It may be a new one: an issuer that is away says neither that it exists nor the opposite."""
    assert ask(live, issuer.token()).status == 200
    issuer.rotate("key-2")
    issuer.stop()
    assert ask(live, issuer.token()).code == "issuer-unavailable"
    issuer.resume()
    live.advance(11)
    assert ask(live, issuer.token()).status == 200


def test_issuer_that_only_signs_tokens_of_programs_is_accepted(live: Live, issuer: Issuer) -> None:
    """Clusters and pipelines publish keys, but no address for signing in."""
    issuer.endpoints = False
    assert ask(live, issuer.token()).status == 200
    assert Visitor(live).call("POST", "/v1/sign-in/begin").code == "sign-in-failed"


def test_unknown_keys_are_asked_for_once_in_a_while(live: Live, issuer: Issuer) -> None:
    """Tokens with invented keys do not make the service ask the issuer each time."""
    tokens = [by_own_key(issuer, kid=f"key-{number + 5}") for number in range(5)]
    ask(live, issuer.token())
    live.advance(11)
    for each in tokens:
        assert ask(live, each).status == 401
    assert issuer.asked.count("/keys") == 2


def test_issuer_that_never_answered_is_503(live: Live, issuer: Issuer) -> None:
    """Without its keys nobody can be recognised; tokens of the service count meanwhile."""
    issuer.oversized = True
    assert ask(live, issuer.token()).code == "issuer-unavailable"
    assert ask(live, TOKEN).status == 200
    issuer.oversized = False
    live.advance(11)
    assert ask(live, issuer.token()).status == 200


def test_issuer_that_hangs_holds_nobody_else_up(live: Live, issuer: Issuer) -> None:
    """Only the caller whose key is not known waits for it."""
    issuer.answers.clear()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ask, live, issuer.token())
        wait_until(lambda: issuer.asked)
        assert ask(live, TOKEN).status == 200
        assert not waiting.done()
        issuer.answers.set()
        assert waiting.result().status == 200


def test_email_names_a_person_only_when_verified(live: Live, issuer: Issuer) -> None:
    """A claim that its holder may write names nobody."""
    live.daemon.operators.oidc.adopt(replace(live.daemon.settings.oidc, name_claim="email"))  # type: ignore[union-attr]
    assert ask(live, issuer.token(email="kim@example.org")).status == 401
    reply = ask(live, issuer.token(email="kim@example.org", email_verified=True))
    assert reply.json["principal"] == "oidc:kim@example.org"


# --- signing in with a browser ----------------------------------------------------------------


class Visitor:
    """A browser, as far as cookies and origins go."""

    def __init__(self, live: Live) -> None:
        """Come without cookies."""
        self.live, self.cookies = live, ""
        self.origin = f"http://{live.host}:{live.port}"

    def call(self, method: str, path: str, form: object = None, **headers: str) -> Reply:
        """Return the answer to a request of the page."""
        sent = {"Cookie": self.cookies, "Origin": self.origin, **headers}
        return self.live.call(method, path, form, headers=sent)

    def begin(self) -> dict[str, str]:
        """Begin to sign in, and return what the issuer is asked."""
        reply = self.call("POST", "/v1/sign-in/begin")
        self.cookies = reply.headers["set-cookie"].partition(";")[0]
        query = parse_qs(urlsplit(reply.json["url"]).query)
        return {name: values[0] for name, values in query.items()}

    def sign_in(self, issuer: Issuer) -> Reply:
        """Sign in."""
        _, back = issuer.answer("/authorization", self.begin())
        found = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
        reply = self.call("POST", "/v1/sign-in", {"code": found["code"], "state": found["state"]})
        if reply.status == 204:
            self.cookies = reply.headers["set-cookie"].partition(";")[0]
        return reply


def test_browser_signs_in_and_out(live: Live, issuer: Issuer) -> None:
    """The token is in a cookie that no script reads; the audit says who signed in."""
    visitor = Visitor(live)
    cookie = visitor.sign_in(issuer).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert visitor.call("GET", "/v1/whoami").json["principal"] == "oidc:kim"
    live.settle()
    records = ask(live, TOKEN, "/v1/audit").json["records"]
    assert ("oidc:kim", "POST /v1/sign-in") in {(r["principal"], r["request"]) for r in records}
    gone = visitor.call("POST", "/v1/sign-out").headers["set-cookie"]
    assert "Max-Age=0" in gone
    assert visitor.call("GET", "/v1/whoami").code == "token-missing"


def test_session_that_was_signed_out_is_over_in_every_use(live: Live, issuer: Issuer) -> None:
    """A copy of the cookie counts no longer: as a cookie, as a bearer token, in an open stream."""
    visitor, other = Visitor(live), Visitor(live)
    visitor.sign_in(issuer)
    issuer.user = "pat"
    other.sign_in(issuer)
    token = visitor.cookies.partition("=")[2]
    stream = live.stream("/v1/watch", token)
    assert visitor.call("POST", "/v1/sign-out").status == 204
    assert ask(live, token).code == "issuer-token-wrong"
    assert b"stopped" in stream.read()
    stream.close()
    assert other.call("GET", "/v1/whoami").json["principal"] == "oidc:pat"
    live.settle()
    records = ask(live, TOKEN, "/v1/audit").json["records"]
    assert ("oidc:kim", "POST /v1/sign-out") in {(r["principal"], r["request"]) for r in records}


def test_session_is_over_in_other_processes_and_after_a_restart(live: Live, issuer: Issuer) -> None:
    """They read the ended sessions from the store. Source: P-5."""
    visitor = Visitor(live)
    visitor.sign_in(issuer)
    token = visitor.cookies.partition("=")[2]
    daemon = live.daemon
    found: list[tuple[str, object]] = []

    async def in_another_process(name: str) -> None:
        oidc = Oidc(daemon.settings.oidc, live.clock, SignOuts(daemon.store, live.clock))
        try:
            found.append((name, (await oidc.login(token)).name))
        except IssuerTokenWrong as error:
            found.append((name, error.facts["reason"]))

    asyncio.run(in_another_process("before"))
    visitor.call("POST", "/v1/sign-out")
    asyncio.run(in_another_process("after"))
    assert found == [("before", "oidc:kim"), ("after", "its session has ended")]


def test_restore_ends_sessions_that_began_before_it(live: Live, issuer: Issuer) -> None:
    """Sign-outs since the backup are lost, so people sign in again. Source: U-5."""
    token = issuer.token()
    assert ask(live, token).status == 200
    live.daemon.store.note_sign_out("", (NOW_S + 60) * 1000, 0)
    wait_until(lambda: ask(live, token).status == 401)
    live.advance(61)
    assert ask(live, issuer.token(iat=NOW_S + 61)).status == 200


def test_cookie_is_bound_to_tls_and_the_host(live: Live, issuer: Issuer) -> None:
    """Behind TLS no other host and no plain page can set or read the session."""
    visitor = Visitor(live)
    visitor.origin = visitor.origin.replace("http:", "https:")
    cookie = visitor.sign_in(issuer).headers["set-cookie"]
    assert cookie.startswith("__Host-forewarn=")
    assert "Secure" in cookie
    assert visitor.call("GET", "/v1/whoami").json["principal"] == "oidc:kim"


def test_service_proves_itself_to_an_issuer_that_wants_a_secret(live: Live, issuer: Issuer) -> None:
    """Not every issuer has public clients."""
    issuer.secret = "of two: words"
    assert Visitor(live).sign_in(issuer).code == "sign-in-failed"
    oidc = live.daemon.operators.oidc
    assert oidc is not None
    oidc.adopt(replace(oidc.settings, client_secret=issuer.secret))
    assert Visitor(live).sign_in(issuer).status == 204


def test_session_ends_with_its_token(live: Live, issuer: Issuer) -> None:
    """An expired session is as if there were none."""
    visitor = Visitor(live)
    visitor.sign_in(issuer)
    live.advance(7300)
    assert visitor.call("GET", "/v1/whoami").code == "token-missing"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Origin": "https://evil.example"}, "cross-site"),
        ({"Origin": ""}, "token-missing"),
        ({"Sec-Fetch-Site": "same-site"}, "cross-site"),
    ],
)
def test_other_sites_cannot_use_a_session(
    live: Live, issuer: Issuer, change: dict[str, str], code: str
) -> None:
    """A change counts only from the service's own page."""
    visitor = Visitor(live)
    visitor.sign_in(issuer)
    assert visitor.call("PUT", "/v1/hosts/h9", {}, **change).code == code
    assert visitor.call("PUT", "/v1/hosts/h9", {}).status == 201


def test_code_of_another_browser_signs_nobody_in(live: Live, issuer: Issuer) -> None:
    """A code and a state that an attacker began are worth nothing in a victim's browser."""
    attacker, victim = Visitor(live), Visitor(live)
    begun = attacker.begin()
    issuer.answer("/authorization", begun)
    form = {"code": "code-0", "state": begun["state"]}
    assert victim.call("POST", "/v1/sign-in", form).code == "sign-in-failed"
    victim.begin()
    assert victim.call("POST", "/v1/sign-in", form).code == "sign-in-failed"
    assert attacker.call("POST", "/v1/sign-in", {**form, "code": "no"}).code == "sign-in-failed"


def test_token_of_another_sign_in_is_refused(live: Live, issuer: Issuer) -> None:
    """The nonce ties the issuer's token to the browser that began."""
    visitor = Visitor(live)
    begun = visitor.begin()
    issuer.answer("/authorization", {**begun, "nonce": "another"})
    form = {"code": "code-0", "state": begun["state"]}
    assert visitor.call("POST", "/v1/sign-in", form).code == "sign-in-failed"


def test_too_long_a_token_is_refused_with_the_reason(live: Live, issuer: Issuer) -> None:
    """Browsers drop long cookies silently."""
    issuer.groups = [f"group-{n:040}" for n in range(80)]
    reply = Visitor(live).sign_in(issuer)
    assert "too many groups" in reply.json["error"]["message"]


def test_owner_who_signed_in_sees_only_their_own(live: Live, issuer: Issuer) -> None:
    """Scopes hold for sessions as for tokens."""
    live.call("PUT", "/v1/topology", FLEET, headers={"Authorization": f"Bearer {TOKEN}"})
    grant(live, "group:shop", Role.OWNER, "shop")
    issuer.user, issuer.groups = "pat", ["shop"]
    visitor = Visitor(live)
    visitor.sign_in(issuer)
    groups = visitor.call("GET", "/v1/groups").json["groups"]
    assert [each["name"] for each in groups] == ["web"]


def test_issuer_is_taken_over_without_a_restart(live: Live, issuer: Issuer) -> None:
    """Tokens of an issuer that is gone from the settings count no longer. Source: P-9."""
    assert ask(live, issuer.token()).status == 200
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert live.call("POST", "/v1/reload", headers=headers).json["needs_restart"] == []
    assert ask(live, issuer.token()).code == "token-wrong"
