"""Attacks on a whole hub by requests of those who may see one workspace alone.

Alice and Bob each own a workspace below one that neither may enter; each has a ServiceAccount that may do everything
in its own.  Bob's objects hold a secret, and have names that are secrets too.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hub_harness import MERGE_PATCH, PARTIAL_LIST, TABLE, Answer
from hypothesis import given
from hypothesis import strategies as st
from platform_harness import ALICE, APIS, BOB, MAPS, OPERATOR, RBAC, TENANCY, PlatformHub, binding, platform_hub

from farflung.http.messages import Request
from farflung.hub.request.user import AUTHENTICATED, User
from farflung.machinery.errors import Obj

SECRET = "what-only-bob-may-know"
NAMED = "named-by-bob"
LOGICAL_CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
KEY = ec.generate_private_key(ec.SECP256R1())


class Neighbours:
    hub: PlatformHub
    alices: str
    bobs: str
    robot: str  #: a token of Alice's ServiceAccount
    bobs_robot: str

    async def settle(self, users: dict[str, User] | None = None) -> Neighbours:
        hub = self.hub = await platform_hub(users=users)
        await hub.workspace("org")
        self.alices = await hub.workspace("alices", ALICE, parent="root:org")
        self.bobs = await hub.workspace("bobs", BOB, parent="root:org")
        self.robot, self.bobs_robot = await hub.robot(self.alices), await hub.robot(self.bobs)
        at = f"/clusters/{self.bobs}"
        metadata = {"name": NAMED, "labels": {"app": "shop"}}
        for plural, rest in (
            ("configmaps", {"data": {"k": SECRET}}),
            ("secrets", {"stringData": {"k": SECRET}}),
            ("serviceaccounts", {}),
        ):
            await hub.made(BOB, f"{at}/api/v1/namespaces/default/{plural}", {"metadata": metadata, **rest})
        await hub.made(BOB, f"{at}/api/v1/namespaces", {"metadata": {"name": NAMED}})
        return self

    @property
    def attackers(self) -> tuple[str | None, ...]:
        return ALICE, self.robot, None

    def is_clean(self, answer: Answer) -> bool:
        told = answer.body.decode(errors="replace") + repr(answer.headers)
        return SECRET not in told and NAMED not in told and self.bobs not in told

    async def check(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> None:
        """Whoever asks learns nothing of Bob's, and changes nothing."""
        before = self.hub.stored(self.bobs)
        for token in self.attackers:
            answer = await self.hub.of(token, method, path, body, query, **headers)
            assert answer.status >= 400, (path, answer.body)
            spoken = path + query + json.dumps(body)
            told = answer.body.decode(errors="replace")
            for word in (SECRET, NAMED, self.bobs):
                assert word not in told or word in spoken, told
        assert self.hub.stored(self.bobs) == before


@pytest.fixture
async def neighbours() -> Neighbours:
    return await Neighbours().settle()


# --- paths ----------------------------------------------------------------------------------------

RESTS = ["/api/v1/configmaps", f"{MAPS}/{NAMED}", "/apis", "/openapi/v2", LOGICAL_CLUSTER, "/metrics"]
#: how the name of a workspace may be written; BOBS and ALICES stand for the clusters
SPELLINGS = [
    "BOBS",
    "root:org:bobs",
    "root%3Aorg%3Abobs",
    "root%3aorg:bobs",
    "root%253Aorg%253Abobs",
    "Root:org:bobs",
    "root:ORG:bobs",
    "root:org:bobs:",
    ":root:org:bobs",
    "root::org:bobs",
    "root:org:alices:..:bobs",
    "ALICES:..:bobs",
    "ALICES/../BOBS",
    "ALICES%2F..%2FBOBS",
    "ALICES%2f%2e%2e%2fBOBS",
    "ALICES/clusters/BOBS",
    "ALICES%2Fclusters%2FBOBS",
    "ALICES,BOBS",
    "ALICES;BOBS",
    "ALICES%00BOBS",
    "BOBS%00",
    "BOBS%20",
    "BOBS%0a",
    "%20BOBS",
    "BOBS.",
    "./BOBS",
    "*",
    "%2A",
    "%2a",
    "%252A",
    "**",
    "*BOBS",
    "root:*:bobs",
    "root:org:*",
    "system:admin",
    "system:masters",
    "system:BOBS",
    "system%3Aadmin",
    "SYSTEM:admin",
    "user:bob",
    "user:kcp-admin",
    "user",
    "~",
    "root:~",
    "",
    "%",
    "%zz",
    "%ff%fe",
    "\u00bd",
    "root:org:b\u043ebs",  # a Cyrillic letter
    "x" * 20_000,
    "root" + ":org" * 5_000,
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_no_spelling_of_a_workspace_lets_anybody_in(neighbours: Neighbours, method: str) -> None:
    for spelling in SPELLINGS:
        named = spelling.replace("BOBS", neighbours.bobs).replace("ALICES", neighbours.alices)
        for rest in RESTS:
            await neighbours.check(method, f"/clusters/{named}{rest}", content_type=MERGE_PATCH)


VIEWS = [
    "/services/apiexport/BOBS/x/clusters/BOBS{}",
    "/services/apiexport/ALICES/x/clusters/BOBS{}",
    "/services/apiexport/ALICES/x/clusters/*{}",
    "/services/apiexport/root/tenancy.kcp.io/clusters/*{}",
    "/services/apiexport/root/tenancy.kcp.io/clusters/BOBS{}",
    "/services/apiexport/root/workload.kcp.io/clusters/%2A{}",
    "/services/apiexport/root:org:bobs/x/clusters/BOBS{}",
    "/services/apiexport/*/x/clusters/*{}",
    "/services/apiexport/*/*/clusters/*{}",
    "/services/apiexport/system:admin/x/clusters/*{}",
    "/services/apiexport/../clusters/BOBS{}",
    "/services/apiexport/ALICES/../BOBS/x/clusters/BOBS{}",
    "/services/apiexport/ALICES%2F..%2FBOBS/x/clusters/BOBS{}",
    "/services/apiexport/ALICES/x%2Fy/clusters/BOBS{}",
    "/services/apiexport//x/clusters/BOBS{}",
    "/services/apiexport/ALICES//clusters/BOBS{}",
    "/services/apiexport/ALICES/x/clusters/{}",
    "/services/apiexport/ALICES/x{}",
    "/services/initializingworkspaces/root:universal/clusters/BOBS{}",
    "/services/initializingworkspaces/root:universal/clusters/*{}",
    "/services/initializingworkspaces/root:org:bobs:x/clusters/*{}",
    "/services/syncer/BOBS/x/y/clusters/BOBS{}",
    "/services/workspaces/BOBS{}",
    "/services{}",
    "/services/../clusters/BOBS{}",
    "/clusters/BOBS/services/apiexport/BOBS/x/clusters/BOBS{}",
    "/clusters/../clusters/BOBS{}",
    "//clusters/BOBS{}",
    "/./clusters/BOBS{}",
    "/%63lusters/BOBS{}",
    "/clusters%2FBOBS{}",
    "/Clusters/BOBS{}",
    "/api/../clusters/BOBS{}",
    "/shards/root/clusters/BOBS{}",
]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_no_way_around_leads_in(neighbours: Neighbours, method: str) -> None:
    for way in VIEWS:
        for rest in RESTS:
            named = way.format(rest).replace("BOBS", neighbours.bobs).replace("ALICES", neighbours.alices)
            await neighbours.check(method, named)


async def test_paths_within_a_workspace_do_not_lead_out_of_it(neighbours: Neighbours) -> None:
    at, bobs = f"/clusters/{neighbours.alices}", neighbours.bobs
    for rest in (
        f"/services/apiexport/{bobs}/x/clusters/{bobs}/api/v1/configmaps",
        f"/clusters/{bobs}/api/v1/configmaps",
        f"/../{bobs}/api/v1/configmaps",
        f"/api/v1/namespaces/..%2F..%2F{bobs}%2Fdefault/configmaps/{NAMED}",
        f"/api/v1/namespaces/default/configmaps/..%2F..%2F{bobs}%2Fdefault%2F{NAMED}",
        f"/api/v1/namespaces/{bobs}%2Fdefault/configmaps",
        f"/apis/apis.kcp.io/v1alpha1/apibindings/..%2F{bobs}%2Fx",
        "/api/v1/namespaces/default/configmaps/%00",
        "/apis/core/v1/configmaps",
        "/apis/core.kcp.io/v1alpha1/logicalclusters/*",
    ):
        for method in ("GET", "DELETE"):
            answer = await neighbours.hub.of(ALICE, method, at + rest)
            assert answer.status in (400, 403, 404, 405), (rest, answer.body)
            assert SECRET.encode() not in answer.body


@given(
    name=st.text(max_size=40) | st.sampled_from(["bobs", "root:org:bobs", "system:admin", "*", "~", "org"]),
    spelled=st.booleans(),
)
async def test_no_text_at_all_is_a_way_in(name: str, spelled: bool) -> None:
    """Whatever stands for a workspace: it is refused, and the same is said whether there is one."""
    hub = await shared()
    named = quote(name, safe="") if spelled else quote(name, safe=":*~%/")
    answer = await hub.of(ALICE, "GET", f"/clusters/{named}/api/v1/configmaps")
    assert answer.status in (400, 403, 404)
    assert b"items" not in answer.body


SHARED: dict[str, PlatformHub] = {}


async def shared() -> PlatformHub:
    """A hub that requests do not change."""
    if "hub" not in SHARED:
        hub = SHARED["hub"] = await platform_hub()
        await hub.workspace("org")
        await hub.workspace("bobs", BOB, parent="root:org")
    return SHARED["hub"]


async def test_a_workspace_that_is_closed_and_one_that_is_not_there_are_the_same(neighbours: Neighbours) -> None:
    hub, unknown = neighbours.hub, "c" * len(neighbours.bobs)
    for rest in (*RESTS, f"{MAPS}/nosuch", "/version", "/apis/nosuch.test/v1/things", "/healthz", "/readyz?verbose"):
        path, _, query = rest.partition("?")
        for token in neighbours.attackers:
            for method in ("GET", "POST", "DELETE"):
                told = [
                    await hub.of(token, method, f"/clusters/{name}{path}", query=query)
                    for name in (neighbours.bobs, unknown, "root:org:bobs", "root:org:nosuch", "root:nosuch")
                ]
                assert len({(one.status, one.body, one.headers) for one in told}) == 1, told


# --- who one is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bob", "kcp-admin", "system:serviceaccount:default:robot", "system:masters", "root"])
async def test_impersonation_in_ones_own_workspace_has_no_effect_elsewhere(neighbours: Neighbours, name: str) -> None:
    for group in ("", "system:masters", "system:kcp:admin", "system:serviceaccounts", AUTHENTICATED):
        headers = {"impersonate_user": name} | ({"impersonate_group": group} if group else {})
        for where in (neighbours.bobs, "root:org", "root", "*", "system:admin"):
            for rest in ("/api/v1/configmaps", f"{MAPS}/{NAMED}", f"{TENANCY}/workspaces/~", "/metrics"):
                await neighbours.check("GET", f"/clusters/{where}{rest}", **headers)
        at_home = await neighbours.hub.of(ALICE, "GET", f"/clusters/{neighbours.alices}/metrics", **headers)
        assert at_home.status == 403
        for path in ("/api/v1/configmaps", f"{MAPS}/{NAMED}"):
            view = f"/services/apiexport/{neighbours.bobs}/x/clusters/{neighbours.alices}{path}"
            await neighbours.check("GET", view, **headers)


async def test_impersonation_makes_no_workspaces_in_anothers_name(neighbours: Neighbours) -> None:
    """Whom the roles of a workspace let somebody be gets no rights by what they make there."""
    hub = neighbours.hub
    body = {"metadata": {"name": "gift"}, "spec": {"type": {"name": "universal", "path": "root"}}}
    at = f"/clusters/{neighbours.alices}{TENANCY}/workspaces"
    made = await hub.of(ALICE, "POST", at, body, impersonate_user="bob", impersonate_group=AUTHENTICATED)
    assert made.status in (201, 403)
    if made.status == 201:
        child = made.json["spec"]["cluster"]
        assert (await hub.of(BOB, "GET", f"/clusters/{child}/api/v1/configmaps")).status == 403


def certificate_request(name: str, *groups: str, dns: str = "") -> str:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if dns:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
    return base64.b64encode(builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)).decode()


async def signed(neighbours: Neighbours, spec: Obj) -> Obj:
    """What becomes of a request for a certificate that Alice makes and approves in her own workspace."""
    at = f"/clusters/{neighbours.alices}/apis/certificates.k8s.io/v1/certificatesigningrequests"
    made = await neighbours.hub.made(ALICE, at, {"metadata": {"name": "x"}, "spec": spec})
    made["status"]["conditions"] = [{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]
    async with neighbours.hub.running_controllers() as controllers:
        assert (await neighbours.hub.of(ALICE, "PUT", f"{at}/x/approval", made)).status == 200
        await controllers.finished()
    status: Obj = (await neighbours.hub.of(ALICE, "GET", f"{at}/x")).json["status"]
    return status


@pytest.mark.parametrize("name", ["bob", "kcp-admin", "shard-admin"])
async def test_a_certificate_is_good_in_the_workspace_that_it_was_asked_for_in(
    neighbours: Neighbours, name: str
) -> None:
    request = certificate_request(name, "system:kcp:admin", AUTHENTICATED)
    spec = {"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    pem = base64.b64decode((await signed(neighbours, spec))["certificate"])
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    hub = neighbours.hub
    hub.now = x509.load_pem_x509_certificate(pem).not_valid_before_utc
    for where in (neighbours.bobs, "root:org:bobs", "*", "root", "root:org"):
        sent = Request("GET", f"/clusters/{where}/api/v1/configmaps", "", {}, b"", certificate=der)
        answer = await hub.answer(sent)
        assert answer.status == 403, answer


async def test_no_workspace_gets_certificates_of_servers(neighbours: Neighbours) -> None:
    """One for the hub's own name would make its owner the hub, for whoever trusts the hub's authority."""
    request = certificate_request("system:node:hub", "system:nodes", dns="hub.example.com")
    spec = {"request": request, "signerName": "kubernetes.io/kubelet-serving"}
    status = await signed(neighbours, {**spec, "usages": ["digital signature", "server auth"]})
    assert "certificate" not in status
    assert status["conditions"][-1]["message"] == "certificates of servers are signed in the root cluster alone"


async def test_tokens_are_for_the_accounts_of_ones_own_workspace(neighbours: Neighbours) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    await neighbours.check(
        "POST", f"/clusters/{neighbours.bobs}/api/v1/namespaces/default/serviceaccounts/{NAMED}/token", review
    )
    for name in (NAMED, f"..%2F..%2F{neighbours.bobs}%2Fdefault%2F{NAMED}"):
        path = f"/clusters/{neighbours.alices}/api/v1/namespaces/default/serviceaccounts/{name}/token"
        assert (await neighbours.hub.of(ALICE, "POST", path, review)).status == 404


async def test_a_token_secret_is_filled_for_an_account_of_the_same_workspace(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    at = f"/clusters/{neighbours.alices}/api/v1/namespaces/default/secrets"
    annotations = {"kubernetes.io/service-account.name": NAMED}
    kind = "kubernetes.io/service-account-token"
    async with hub.running_controllers() as controllers:
        await hub.of(ALICE, "POST", at, {"metadata": {"name": "t", "annotations": annotations}, "type": kind})
        await controllers.finished()
    found = await hub.of(ALICE, "GET", f"{at}/t")
    assert found.status == 404 or "token" not in found.json.get("data", {})


async def test_reviews_answer_of_ones_own_workspace_alone(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    about = {"verb": "get", "resource": "configmaps", "namespace": "default", "name": NAMED}
    reviews = [
        ("authorization.k8s.io", "SelfSubjectAccessReview", {"resourceAttributes": about}),
        ("authorization.k8s.io", "SelfSubjectRulesReview", {"namespace": "default"}),
        ("authorization.k8s.io", "SubjectAccessReview", {"user": "bob", "resourceAttributes": about}),
        ("authentication.k8s.io", "TokenReview", {"token": neighbours.bobs_robot}),
        ("authentication.k8s.io", "SelfSubjectReview", {}),
    ]
    for group, kind, spec in reviews:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{kind.lower()}s"
        await neighbours.check("POST", f"/clusters/{neighbours.bobs}{path}", body)
        await neighbours.check("POST", f"/clusters/*{path}", body)
        for token in (ALICE, neighbours.robot):
            answer = await hub.of(token, "POST", f"/clusters/{neighbours.alices}{path}", body)
            assert answer.status == 201
            assert neighbours.bobs.encode() not in answer.body
    made_up = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "a.b.c"}}
    bobs = {**made_up, "spec": {"token": neighbours.bobs_robot}}
    at = f"/clusters/{neighbours.alices}/apis/authentication.k8s.io/v1/tokenreviews"
    told = [(await hub.of(ALICE, "POST", at, body)).json["status"] for body in (made_up, bobs)]
    assert told[0] == told[1], "a token of another workspace is told from one that is none"


async def test_rights_in_one_workspace_are_none_in_another(neighbours: Neighbours) -> None:
    """Alice gives everything to everybody, bound to roles of every name, and may still do nothing at Bob's."""
    hub, at = neighbours.hub, f"/clusters/{neighbours.alices}{RBAC}"
    everything = [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]
    for role in ("cluster-admin", "system:kcp:admin", "workspace-admin", "owner"):
        await hub.of(ALICE, "POST", f"{at}/clusterroles", {"metadata": {"name": role}, "rules": everything})
        for group in ("system:authenticated", "system:unauthenticated", "system:masters", "system:serviceaccounts"):
            bound = binding(f"{role}-{group.rpartition(':')[2]}", "", role)
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
            await hub.of(ALICE, "POST", f"{at}/clusterrolebindings", {**bound, "subjects": [subject]})
    for rest in ("/api/v1/configmaps", f"{MAPS}/{NAMED}", f"{RBAC}/clusterroles", "/apis"):
        await neighbours.check("GET", f"/clusters/{neighbours.bobs}{rest}")
        await neighbours.check("GET", f"/clusters/root:org{rest}")


@pytest.mark.parametrize("name", ["root", "root:org", "bobs", "root:org:bobs", "*", "system", "user:bob", "bob:x", "~"])
async def test_a_user_with_the_name_of_a_workspace_has_no_special_rights(name: str) -> None:
    eve = {"eve": User(name, (AUTHENTICATED, name))}
    neighbours = await Neighbours().settle(eve)
    hub = neighbours.hub
    homes = [
        (await hub.of(token, "GET", f"/clusters/root{TENANCY}/workspaces/~")).json["spec"]["cluster"]
        for token in ("eve", BOB, ALICE)
    ]
    assert len({*homes, neighbours.bobs, neighbours.alices, "root"}) == 6
    for where in (neighbours.bobs, "root:org:bobs", "root:org", "user:bob", homes[1], "*"):
        for rest in ("/api/v1/configmaps", LOGICAL_CLUSTER):
            answer = await hub.of("eve", "GET", f"/clusters/{where}{rest}")
            assert answer.status == 403, answer.body
    assert (await hub.of("eve", "GET", f"/clusters/{homes[0]}/api/v1/configmaps")).status == 200


async def test_a_home_is_its_owners(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    home = (await hub.of(BOB, "GET", f"/clusters/root{TENANCY}/workspaces/~")).json["spec"]["cluster"]
    for where in (home, "user:bob", "user%3Abob"):
        for rest in RESTS:
            for token in neighbours.attackers:
                assert (await hub.of(token, "GET", f"/clusters/{where}{rest}")).status == 403
    mine = await hub.of(ALICE, "GET", f"/clusters/root{TENANCY}/workspaces/~")
    assert mine.json["spec"]["cluster"] != home
    for headers in ({"impersonate_user": "bob"}, {"impersonate_user": "bob", "impersonate_group": AUTHENTICATED}):
        assert (await hub.of(ALICE, "GET", f"/clusters/root{TENANCY}/workspaces/~", **headers)).status == 403
    assert (await hub.of(neighbours.robot, "GET", f"/clusters/root{TENANCY}/workspaces/~")).status == 403


# --- what is in requests --------------------------------------------------------------------------


def carried(start: str, revision: int) -> str:
    raw = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{start}\x00"}).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


STARTS = [
    "BOBS/default/a",
    "../BOBS/default/a",
    "/../BOBS/",
    "./BOBS/",
    "default/\x7f",
    "\U0010ffff",
    "default/../../BOBS/default/",
    "/core/configmaps/BOBS/",
    "default/",
    "/",
    "\x00",
    " ",
]


@pytest.mark.parametrize("revision", [-1, 1, 150, 2**62])
async def test_continue_tokens_of_ones_own_making_stay_at_home(neighbours: Neighbours, revision: int) -> None:
    hub = neighbours.hub
    for start in STARTS:
        token = carried(start.replace("BOBS", neighbours.bobs), revision)
        for path in ("/api/v1/configmaps", MAPS, "/api/v1/secrets", f"{APIS}/apibindings"):
            for limit in ("0", "1", "500"):
                query = f"continue={quote(token)}&limit={limit}"
                answer = await hub.of(ALICE, "GET", f"/clusters/{neighbours.alices}{path}", query=query)
                assert SECRET.encode() not in answer.body
                assert NAMED.encode() not in answer.body


async def test_a_continue_token_of_another_workspace_goes_on_in_ones_own(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    for name in ("a", "z"):
        await hub.made(ALICE, f"/clusters/{neighbours.alices}{MAPS}", {"metadata": {"name": name}})
    for path in ("/api/v1/configmaps", MAPS):
        page = await hub.of(BOB, "GET", f"/clusters/{neighbours.bobs}{path}", query="limit=1")
        token = page.json["metadata"]["continue"]
        answer = await hub.of(ALICE, "GET", f"/clusters/{neighbours.alices}{path}", query=f"continue={token}&limit=1")
        assert neighbours.is_clean(answer)
        assert set(answer.names) <= {"a", "z", "kube-root-ca.crt"}
        everywhere = await hub.of("master", "GET", "/clusters/*/api/v1/configmaps", query="limit=1")
        token = everywhere.json["metadata"]["continue"]
        answer = await hub.of(ALICE, "GET", f"/clusters/{neighbours.alices}{path}", query=f"continue={token}&limit=9")
        assert neighbours.is_clean(answer)


async def test_counts_are_of_ones_own(neighbours: Neighbours) -> None:
    answer = await neighbours.hub.of(ALICE, "GET", f"/clusters/{neighbours.alices}/api/v1/configmaps", query="limit=1")
    assert "remainingItemCount" not in answer.json["metadata"]


QUESTIONS = [
    "labelSelector=app%3Dshop",
    f"fieldSelector=metadata.name%3D{NAMED}",
    "fieldSelector=metadata.name!%3Dx",
    "resourceVersion=1&resourceVersionMatch=Exact",
    "resourceVersion=0",
    "resourceVersionMatch=NotOlderThan&resourceVersion=1",
    "cluster=BOBS&logicalCluster=BOBS",
]


@pytest.mark.parametrize("accept", ["application/json", TABLE, PARTIAL_LIST, "application/yaml"])
async def test_no_question_brings_more_than_ones_own(neighbours: Neighbours, accept: str) -> None:
    for question in QUESTIONS:
        query = question.replace("BOBS", neighbours.bobs)
        for path in ("/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/secrets"):
            at = f"/clusters/{neighbours.alices}{path}"
            answer = await neighbours.hub.of(ALICE, "GET", at, query=query, accept=accept)
            assert neighbours.is_clean(answer), answer.body


@pytest.mark.parametrize("where", ["BOBS", "*", "root:org", "root:org:bobs", "system:admin"])
async def test_no_syncer_watches_other_mailboxes(neighbours: Neighbours, where: str) -> None:
    where = where.replace("BOBS", neighbours.bobs)
    for query in ("watch=1", "watch=1&resourceVersion=1", "watch=true&sendInitialEvents=true&allowWatchBookmarks=true"):
        for rest in ("/api/v1/configmaps", "/api/v1/watch/configmaps", f"{TENANCY}/workspaces", f"{APIS}/apibindings"):
            await neighbours.check("GET", f"/clusters/{where}{rest}", query=query)


async def test_a_watch_of_ones_own_brings_ones_own(neighbours: Neighbours) -> None:
    hub, at = neighbours.hub, f"/clusters/{neighbours.alices}"
    hub.token = ALICE
    watches = [
        await hub.watch(f"{at}{path}", query)
        for path in ("/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/secrets", "/api/v1/events")
        for query in ({}, {"resourceVersion": "1"}, {"resourceVersion": str(hub.store.revision)})
    ]
    await hub.made(
        BOB, f"/clusters/{neighbours.bobs}{MAPS}", {"metadata": {"name": f"{NAMED}-2"}, "data": {"k": SECRET}}
    )
    await hub.of(BOB, "DELETE", f"/clusters/{neighbours.bobs}{MAPS}/{NAMED}")
    for watch in watches:
        assert NAMED not in json.dumps(watch.events)
        assert neighbours.bobs not in json.dumps(watch.events)


# --- what belongs to what -------------------------------------------------------------------------


async def test_an_owner_in_another_workspace_is_none(neighbours: Neighbours) -> None:
    """Neither are Bob's objects collected with Alice's, nor do hers live or go with his."""
    hub = neighbours.hub
    bobs = (await hub.of(BOB, "GET", f"/clusters/{neighbours.bobs}{MAPS}/{NAMED}")).json["metadata"]
    mine = await hub.made(ALICE, f"/clusters/{neighbours.alices}{MAPS}", {"metadata": {"name": NAMED}})
    same = {"apiVersion": "v1", "kind": "ConfigMap", "name": NAMED, "blockOwnerDeletion": True}
    for uid, name in ((bobs["uid"], "his"), (mine["metadata"]["uid"], "hers")):
        owned = {"metadata": {"name": name, "ownerReferences": [{**same, "uid": uid}]}}
        await hub.made(ALICE, f"/clusters/{neighbours.alices}{MAPS}", owned)
    stolen = {"metadata": {"name": "kept", "ownerReferences": [{**same, "uid": mine["metadata"]["uid"]}]}}
    await hub.made(BOB, f"/clusters/{neighbours.bobs}{MAPS}", {"metadata": {"name": "free"}})
    before = hub.stored(neighbours.bobs)
    async with hub.running_controllers() as controllers:
        await controllers.finished()
        left = (await hub.of(ALICE, "GET", f"/clusters/{neighbours.alices}{MAPS}")).names
        assert "his" not in left
        assert "hers" in left
        await hub.of(
            ALICE, "DELETE", f"/clusters/{neighbours.alices}{MAPS}/{NAMED}", {"propagationPolicy": "Foreground"}
        )
        await controllers.finished()
        kept = {key: value for key, value in hub.stored(neighbours.bobs).items() if key in before}
        assert kept.keys() == before.keys()
        await hub.made(BOB, f"/clusters/{neighbours.bobs}{MAPS}", stolen)
        await controllers.finished()
        present = (await hub.of(BOB, "GET", f"/clusters/{neighbours.bobs}{MAPS}")).names
        assert NAMED in present
        assert "kept" not in present, "an owner that is not in the workspace is gone"
    events = await hub.of(BOB, "GET", f"/clusters/{neighbours.bobs}/api/v1/events")
    assert neighbours.alices.encode() not in events.body


async def test_preconditions_are_about_ones_own(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    bobs = (await hub.of(BOB, "GET", f"/clusters/{neighbours.bobs}{MAPS}/{NAMED}")).json["metadata"]
    body = {"preconditions": {"uid": bobs["uid"], "resourceVersion": bobs["resourceVersion"]}}
    answer = await hub.of(ALICE, "DELETE", f"/clusters/{neighbours.alices}{MAPS}/{NAMED}", body)
    assert answer.status == 404
    put = {"metadata": {"name": NAMED, "uid": bobs["uid"], "resourceVersion": bobs["resourceVersion"]}}
    assert (await hub.of(ALICE, "PUT", f"/clusters/{neighbours.alices}{MAPS}/{NAMED}", put)).status in (404, 409)
    assert (await hub.of(BOB, "GET", f"/clusters/{neighbours.bobs}{MAPS}/{NAMED}")).json["data"] == {"k": SECRET}


async def test_quotas_and_limits_of_one_workspace_are_none_of_anothers(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    at = f"/clusters/{neighbours.bobs}/api/v1/namespaces/default"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"configmaps": "0", "count/secrets": "0"}}}
    await hub.made(BOB, f"{at}/resourcequotas", quota)
    async with hub.running_controllers() as controllers:
        await controllers.finished()
        refused = await hub.of(BOB, "POST", f"{at}/configmaps", {"metadata": {"name": "more"}})
        assert refused.status == 403
        for name in ("a", "b"):
            await hub.made(ALICE, f"/clusters/{neighbours.alices}{MAPS}", {"metadata": {"name": name}})
        await controllers.finished()
        mine = {"metadata": {"name": "mine"}, "spec": {"hard": {"configmaps": "9"}}}
        await hub.made(ALICE, f"/clusters/{neighbours.alices}/api/v1/namespaces/default/resourcequotas", mine)
        await controllers.finished()
        found = await hub.of(
            ALICE, "GET", f"/clusters/{neighbours.alices}/api/v1/namespaces/default/resourcequotas/mine"
        )
        assert found.json["status"]["used"] == {"configmaps": "3"}  # with the authority of the hub


async def test_a_namespace_that_ends_takes_nothing_of_anothers(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    await hub.made(ALICE, f"/clusters/{neighbours.alices}/api/v1/namespaces", {"metadata": {"name": NAMED}})
    await hub.made(
        BOB, f"/clusters/{neighbours.bobs}/api/v1/namespaces/{NAMED}/configmaps", {"metadata": {"name": "kept"}}
    )
    before = hub.stored(neighbours.bobs)
    async with hub.running_controllers() as controllers:
        await hub.of(ALICE, "DELETE", f"/clusters/{neighbours.alices}/api/v1/namespaces/{NAMED}")
        await hub.of(ALICE, "DELETE", f"/clusters/{neighbours.alices}/api/v1/namespaces/{NAMED}/configmaps")
        await controllers.finished()
    assert before.keys() <= hub.stored(neighbours.bobs).keys()


# --- another workspace of the same name -----------------------------------------------------------


async def test_a_workspace_that_is_created_again_has_another_cluster(neighbours: Neighbours) -> None:
    """Whoever had a watch, a token or a place in a list of the old one has nothing of the new one."""
    hub, old = neighbours.hub, neighbours.alices
    for name in ("a", "b"):
        await hub.made(ALICE, f"/clusters/{old}{MAPS}", {"metadata": {"name": name}})
    page = await hub.of(ALICE, "GET", f"/clusters/{old}{MAPS}", query="limit=1")
    hub.token = ALICE
    watch = await hub.watch(f"/clusters/root:org:alices{MAPS}", {"resourceVersion": str(hub.store.revision)})
    async with hub.running_controllers() as controllers:
        await hub.of(OPERATOR, "DELETE", f"/clusters/root:org{TENANCY}/workspaces/alices")
        await controllers.finished()
        assert hub.stored(old) == {}
        new = await hub.workspace("alices", BOB, parent="root:org")
        await controllers.finished()
    assert new != old
    await hub.robot(new)
    await hub.made(BOB, f"/clusters/{new}{MAPS}", {"metadata": {"name": "fresh"}, "data": {"k": SECRET}})
    token = page.json["metadata"]["continue"]
    for where in (old, new, "root:org:alices"):
        for who in (ALICE, neighbours.robot):
            for query in ("", f"continue={token}", "watch=1", "resourceVersion=1&resourceVersionMatch=Exact"):
                answer = await hub.of(who, "GET", f"/clusters/{where}{MAPS}", query=query)
                assert answer.status in (401, 403), answer.body
    assert SECRET not in json.dumps(watch.events)
    assert "fresh" not in json.dumps(watch.events)
    assert {kind for kind, _ in watch.changes} <= {"DELETED", "MODIFIED"}
