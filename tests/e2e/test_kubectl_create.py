"""kubectl create, in all its forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubectl_runner import Kubectl

MANY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: first}
data: {a: "1"}
---
# nothing here
---
apiVersion: v1
kind: Secret
metadata: {name: second}
stringData: {password: hunter2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: third}
spec:
  selector: {matchLabels: {app: third}}
  template:
    metadata: {labels: {app: third}}
    spec:
      containers: [{name: main, image: nginx, ports: [{containerPort: 80}]}]
"""

LISTED = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}}
- {apiVersion: v1, kind: ConfigMap, metadata: {generateName: some-}}
"""


def pair_of_pems() -> tuple[bytes, bytes]:
    """A certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "example.com")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), private


def test_configuration_is_created_by_its_own_commands(kubectl: Kubectl) -> None:
    (kubectl.home / "file.txt").write_text("hello\n")
    (kubectl.home / "blob").write_bytes(b"\x00\xff")
    assert (
        kubectl("create cm settings --from-literal=a=1 --from-file=file.txt --from-file=blob")
        == "configmap/settings created\n"
    )
    settings = kubectl.object("cm settings")
    assert (settings["data"], settings["binaryData"]) == ({"a": "1", "file.txt": "hello\n"}, {"blob": "AP8="})
    [owner] = settings["metadata"]["managedFields"]
    assert (owner["manager"], owner["operation"]) == ("kubectl-create", "Update")

    assert kubectl("create secret generic plain --from-literal=pw=12345") == "secret/plain created\n"
    assert kubectl.value("secret plain", ".type} {.data.pw") == "Opaque MTIzNDU="

    certificate, key = pair_of_pems()
    (kubectl.home / "tls.crt").write_bytes(certificate)
    (kubectl.home / "tls.key").write_bytes(key)
    assert kubectl("create secret tls pair --cert=tls.crt --key=tls.key") == "secret/pair created\n"
    assert kubectl.value("secret pair", ".type") == "kubernetes.io/tls"

    login = "--docker-server=r.example.com --docker-username=u --docker-password=p"
    assert kubectl(f"create secret docker-registry pull {login}") == "secret/pull created\n"
    assert kubectl.table("get secret") == [
        ["NAME", "TYPE", "DATA", "AGE"],
        ["pair", "kubernetes.io/tls", "2", "AGE"],
        ["plain", "Opaque", "1", "AGE"],
        ["pull", "kubernetes.io/dockerconfigjson", "1", "AGE"],
    ]
    assert kubectl.fails("create cm settings") == (
        'error: failed to create configmap: configmaps "settings" already exists'
    )


def test_namespaces_and_their_rules_are_created_by_their_own_commands(kubectl: Kubectl) -> None:
    other = f"{kubectl.namespace}-other"
    assert kubectl(f"create ns {other}") == f"namespace/{other} created\n"
    assert kubectl.value(f"ns {other}", ".status.phase} {.metadata.labels") == (
        f'Active {{"kubernetes.io/metadata.name":"{other}"}}'
    )
    assert kubectl("create sa robot") == "serviceaccount/robot created\n"
    assert kubectl(f"create sa robot -n {other}") == "serviceaccount/robot created\n"
    assert (
        kubectl("create role reader --verb=get,list --resource=pods,deployments.apps --resource-name=x")
        == "role.rbac.authorization.k8s.io/reader created\n"
    )
    assert kubectl.object("role reader")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["x"], "verbs": ["get", "list"]},
    ]
    account = f"--serviceaccount={kubectl.namespace}:robot"
    assert (
        kubectl(f"create rolebinding readers --role=reader {account} --user=me --group=us")
        == "rolebinding.rbac.authorization.k8s.io/readers created\n"
    )
    assert kubectl.table("get rolebinding readers -o wide") == [
        ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"],
        ["readers", "Role/reader", "AGE", "me", "us", f"{kubectl.namespace}/robot"],
    ]
    cluster = f"{kubectl.namespace}-all"
    assert "created" in kubectl(f"create clusterrole {cluster} --verb=get --non-resource-url=/metrics")
    assert "created" in kubectl(f"create clusterrolebinding {cluster} --clusterrole={cluster} --user=me")
    assert kubectl.table(f"get clusterrolebinding {cluster}") == [
        ["NAME", "ROLE", "AGE"],
        [cluster, f"ClusterRole/{cluster}", "AGE"],
    ]
    assert kubectl("create quota small --hard=pods=3,cpu=1500m") == "resourcequota/small created\n"
    assert kubectl.object("quota small")["spec"] == {"hard": {"pods": "3", "cpu": "1500m"}}
    assert (
        kubectl(f"create priorityclass {cluster} --value=7 --description=low")
        == f"priorityclass.scheduling.k8s.io/{cluster} created\n"
    )
    row = kubectl.table(f"get priorityclass {cluster}")[1]
    assert row[:4] == [cluster, "7", "false", "AGE"]


def test_workloads_are_created_by_their_own_commands_with_defaults(kubectl: Kubectl) -> None:
    assert kubectl("create deployment web --image=nginx:1 --replicas=3 --port=80") == "deployment.apps/web created\n"
    web = kubectl.object("deploy web")
    assert (web["metadata"]["generation"], web["spec"]["replicas"]) == (1, 3)
    assert web["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
    [container] = web["spec"]["template"]["spec"]["containers"]
    assert (container["imagePullPolicy"], container["ports"]) == (
        "IfNotPresent",
        [{"containerPort": 80, "protocol": "TCP"}],
    )
    assert kubectl("create job once --image=busybox -- echo hi") == "job.batch/once created\n"
    once = kubectl.object("job once")
    assert once["spec"]["template"]["spec"]["containers"][0]["command"] == ["echo", "hi"]
    assert once["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] == once["metadata"]["uid"]
    assert kubectl("create cronjob often --image=busybox --schedule='*/5 * * * *'") == "cronjob.batch/often created\n"
    assert kubectl("create job now --from=cronjob/often") == "job.batch/now created\n"
    [owner] = kubectl.object("job now")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (
        "CronJob",
        "often",
        kubectl.value("cronjob often", ".metadata.uid"),
    )
    assert kubectl("create pdb calm --selector=app=web --min-available=50%") == (
        "poddisruptionbudget.policy/calm created\n"
    )
    assert kubectl("run single --image=nginx --labels=app=web --env=A=b") == "pod/single created\n"
    assert kubectl.value("pod single", ".spec.containers[0].env} {.status.phase} {.status.qosClass") == (
        '[{"name":"A","value":"b"}] Pending BestEffort'
    )
    assert kubectl.table("get deploy,pdb,cronjob")[1] == ["deployment.apps/web", "0/3", "0", "0", "AGE"]


def test_services_and_ingresses_are_created_by_their_own_commands(kubectl: Kubectl) -> None:
    assert kubectl("create service clusterip inner --tcp=80:8080") == "service/inner created\n"
    assert kubectl("create service nodeport outer --tcp=81") == "service/outer created\n"
    assert kubectl("create service externalname alias --external-name=example.com") == "service/alias created\n"
    assert kubectl("create service loadbalancer front --tcp=82") == "service/front created\n"
    inner = kubectl.object("svc inner")["spec"]
    assert inner["ports"] == [{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    assert inner["clusterIPs"] == [inner["clusterIP"]]
    assert inner["selector"] == {"app": "inner"}
    assert 30000 <= kubectl.object("svc outer")["spec"]["ports"][0]["nodePort"] <= 32767
    assert [row[:2] for row in kubectl.table("get svc --sort-by=.metadata.name")] == [
        ["NAME", "TYPE"],
        ["alias", "ExternalName"],
        ["front", "LoadBalancer"],
        ["inner", "ClusterIP"],
        ["outer", "NodePort"],
    ]
    assert kubectl("create deployment web --image=nginx --port=80") == "deployment.apps/web created\n"
    assert kubectl("expose deployment web --target-port=8080") == "service/web exposed\n"
    assert kubectl.value("svc web", ".spec.ports[0].targetPort") == "8080"
    assert (
        kubectl("create ingress door --class=plain --rule='a.example.com/x*=inner:80,tls=pair'")
        == "ingress.networking.k8s.io/door created\n"
    )
    assert kubectl.table("get ingress") == [
        ["NAME", "CLASS", "HOSTS", "ADDRESS", "PORTS", "AGE"],
        ["door", "plain", "a.example.com", "80, 443", "AGE"],
    ]
    [rule] = kubectl.object("ingress door")["spec"]["rules"]
    assert rule["http"]["paths"][0] == {
        "path": "/x",
        "pathType": "Prefix",
        "backend": {"service": {"name": "inner", "port": {"number": 80}}},
    }


def test_files_with_many_documents_and_lists_are_created_in_order(kubectl: Kubectl) -> None:
    (kubectl.home / "many.yaml").write_text(MANY)
    assert kubectl("create -f many.yaml") == (
        "configmap/first created\nsecret/second created\ndeployment.apps/third created\n"
    )
    assert kubectl.value("secret second", ".data") == '{"password":"aHVudGVyMg=="}'
    one, some = kubectl("create -f -", LISTED).splitlines()
    assert one == "configmap/one created"
    assert some.startswith("configmap/some-")
    assert kubectl.exists(some.removesuffix(" created"))
    again = kubectl.fails("create -f many.yaml").splitlines()
    assert (
        again[0]
        == 'Error from server (AlreadyExists): error when creating "many.yaml": configmaps "first" already exists'
    )
    assert len(again) == 3
    shown = kubectl("create cm shown --from-literal=a=1 -o yaml")
    assert yaml.safe_load(shown)["data"] == {"a": "1"}
    kubectl("get -f many.yaml -o name")
    assert kubectl("delete -f many.yaml --wait=false").count(" deleted") == 3


def test_a_server_dry_run_shows_what_would_be_and_writes_nothing(kubectl: Kubectl) -> None:
    (kubectl.home / "many.yaml").write_text(MANY)
    assert kubectl("create -f many.yaml --dry-run=server") == (
        "configmap/first created (server dry run)\n"
        "secret/second created (server dry run)\n"
        "deployment.apps/third created (server dry run)\n"
    )
    assert kubectl("create deploy d --image=nginx --dry-run=server -o jsonpath='{.spec.progressDeadlineSeconds}'") == (
        "600"
    )
    other = f"{kubectl.namespace}-dry"
    assert kubectl(f"create ns {other} --dry-run=server") == f"namespace/{other} created (server dry run)\n"
    assert not kubectl.exists("cm first")
    assert not kubectl.exists("secret second")
    assert not kubectl.exists("deploy third")
    assert not kubectl.exists(f"ns {other}")


def test_what_is_not_understood_is_refused_unless_told_otherwise(kubectl: Kubectl) -> None:
    typo = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: typo}\ndta: {a: b}\n"
    refusal = (
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as'
        ' a ConfigMap: strict decoding error: unknown field "dta"'
    )
    assert kubectl.fails("create -f -", typo) == refusal
    assert kubectl.fails("create -f - --dry-run=server", typo) == refusal
    assert not kubectl.exists("cm typo")
    warned = kubectl.run("create -f - --validate=warn", typo)
    assert (warned.returncode, warned.stdout, warned.stderr) == (
        0,
        "configmap/typo created\n",
        'Warning: unknown field "dta"\n',
    )
    assert "data" not in kubectl.object("cm typo")
    assert kubectl("delete cm typo") == kubectl.deleted("configmap", "typo")
    assert kubectl("create -f - --validate=ignore", typo) == "configmap/typo created\n"

    bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n"
    assert kubectl.fails("create -f -", bad).startswith(
        'The ConfigMap "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name":'
    )
    unfit = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: unfit}\ndata: {a: 1}\n"
    assert "cannot unmarshal number into Go struct field ConfigMap.data of type string" in kubectl.fails(
        "create -f -", unfit
    )
    strange = "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: x}\n"
    assert 'no matches for kind "Gadget" in version "example.com/v1"' in kubectl.fails("create -f -", strange)
    assert (
        kubectl.fails("create cm x -n nowhere") == 'error: failed to create configmap: namespaces "nowhere" not found'
    )
