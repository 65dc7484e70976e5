"""kubectl get, watch, describe, explain and wait."""

from __future__ import annotations

import orjson
import yaml
from kubectl_runner import Kubectl, cells

OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: x, tier: front}, annotations: {rank: "3"}}
data: {k: v}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, labels: {app: x, tier: back}, annotations: {rank: "1"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, labels: {app: "y"}, annotations: {rank: "2"}}
data: {k: v, l: w}
binaryData: {bin: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: s, labels: {app: x}}
---
apiVersion: v1
kind: Service
metadata: {name: svc, labels: {app: x}}
spec: {ports: [{port: 80}], selector: {app: x}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: p}}
spec:
  nodeName: there
  containers:
  - {name: main, image: nginx, resources: {requests: {cpu: 100m}}, env: [{name: A, value: b}]}
"""


def test_get_prints_every_format(kubectl: Kubectl) -> None:
    kubectl("create -f -", OBJECTS)
    rows = [["a", "1", "AGE"], ["b", "0", "AGE"], ["c", "3", "AGE"]]
    assert kubectl.table("get cm -l app") == [["NAME", "DATA", "AGE"], *rows]
    assert kubectl.table("get cm -l app -o wide") == [["NAME", "DATA", "AGE"], *rows]
    assert kubectl.table("get cm -l app --no-headers") == rows
    assert kubectl("get cm,secret,svc -l app=x -o name") == "configmap/a\nconfigmap/b\nsecret/s\nservice/svc\n"
    assert kubectl.table("get cm/a secret/s") == [
        ["NAME", "DATA", "AGE"],
        ["configmap/a", "1", "AGE"],
        ["NAME", "TYPE", "DATA", "AGE"],
        ["secret/s", "Opaque", "0", "AGE"],
    ]
    a = orjson.loads(kubectl("get cm a -o json"))
    metadata = a.pop("metadata")
    assert a == {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    assert {"uid", "resourceVersion", "creationTimestamp"} < set(metadata)
    assert "managedFields" not in metadata
    listed = yaml.safe_load(kubectl("get cm a b -o yaml"))
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == ("List", ["a", "b"])
    assert kubectl("get cm -l app -o jsonpath='{.items[*].metadata.name}'") == "a b c"
    columns = kubectl.table("get cm -l app -o custom-columns=N:.metadata.name,K:.data.k")
    assert columns == [["N", "K"], ["a", "v"], ["b", "<none>"], ["c", "v"]]
    assert kubectl("get cm -l app -o go-template='{{range .items}}{{.metadata.name}}.{{end}}'") == "a.b.c."
    assert kubectl.table("get cm -l app -L tier --show-labels")[1:] == [
        ["a", "1", "AGE", "front", "app=x,tier=front"],
        ["b", "0", "AGE", "back", "app=x,tier=back"],
        ["c", "3", "AGE", "app=y"],
    ]
    assert kubectl("get --raw /healthz") == "ok"


def test_get_selects_sorts_and_pages(kubectl: Kubectl) -> None:
    kubectl("create -f -", OBJECTS)

    def names(options: str) -> str:
        return kubectl(f"get cm {options} -o jsonpath='{{.items[*].metadata.name}}'")

    assert names("-l app=x") == "a b"
    assert names("-l 'app!=x,app'") == "c"
    assert names("-l 'app in (x,y),tier notin (back)'") == "a c"
    assert names("--field-selector metadata.name=b") == "b"
    assert names("-l app --field-selector metadata.name!=b") == "a c"
    assert names("-l app --sort-by=.metadata.annotations.rank") == "b c a"
    assert names("-l app --chunk-size=1") == "a b c"
    assert names("-l app --chunk-size=2") == "a b c"
    assert kubectl.table("get cm -l app --chunk-size=1 --sort-by=.metadata.annotations.rank")[1:] == [
        ["b", "0", "AGE"],
        ["c", "3", "AGE"],
        ["a", "1", "AGE"],
    ]
    paged = kubectl.run("get cm -l app --chunk-size=1 -v=6")
    assert paged.stderr.count("limit=1") == 3
    assert kubectl("get secret --field-selector type=Opaque -o name") == "secret/s\n"
    empty = kubectl.run("get cm -l none=here")
    assert (empty.returncode, empty.stdout, empty.stderr) == (
        0,
        "",
        f"No resources found in {kubectl.namespace} namespace.\n",
    )
    everywhere = kubectl.table(f"get cm -A -l app --field-selector metadata.namespace={kubectl.namespace}")
    assert everywhere[:2] == [["NAMESPACE", "NAME", "DATA", "AGE"], [kubectl.namespace, "a", "1", "AGE"]]
    assert ["default"] in [row[:1] for row in kubectl.table("get sa -A")]
    assert kubectl.fails("get cm --field-selector data.k=v") == (
        'Error from server (BadRequest): Unable to find "/v1, Resource=configmaps" that match label selector "", field'
        ' selector "data.k=v": "data.k" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    assert kubectl.fails("get cm -l 'app in x'").endswith("unable to parse requirement: found 'x' expected: '('")
    assert kubectl.fails("get cm nope") == 'Error from server (NotFound): configmaps "nope" not found'
    assert kubectl.fails("get nosuch") == 'error: the server doesn\'t have a resource type "nosuch"'


def test_get_prints_kubernetes_own_columns(kubectl: Kubectl) -> None:
    kubectl("create -f -", OBJECTS + "---" + POD)
    kubectl("create deployment web --image=nginx:1")
    assert kubectl.table("get pod -o wide") == [
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"],
        ["p", "0/1", "Pending", "0", "AGE", "<none>", "there", "<none>", "<none>"],
    ]
    assert kubectl("get pod --field-selector spec.nodeName=there,status.phase=Pending -o name") == "pod/p\n"
    assert kubectl.table("get deploy -o wide") == [
        ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"],
        ["web", "0/1", "0", "0", "AGE", "nginx", "nginx:1", "app=web"],
    ]
    [headers, service] = kubectl.table("get svc -o wide")
    assert headers == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"]
    assert service[:2] + service[3:] == ["svc", "ClusterIP", "<none>", "80/TCP", "AGE", "app=x"]
    assert kubectl.table(f"get ns {kubectl.namespace}") == [
        ["NAME", "STATUS", "AGE"],
        [kubectl.namespace, "Active", "AGE"],
    ]
    kinds = [row[0] for row in kubectl.table("get all") if "/" in row[0]]
    assert kinds == ["pod/p", "service/svc", "deployment.apps/web"]


def test_a_watch_prints_every_change(kubectl: Kubectl) -> None:
    kubectl("create cm seen --from-literal=a=1")
    with kubectl.watching("get cm -w --output-watch-events -l '!none' --field-selector metadata.name=seen") as watch:
        assert watch.line() == ["EVENT", "NAME", "DATA", "AGE"]
        assert watch.line() == ["ADDED", "seen", "1", "AGE"]
        kubectl("""patch cm seen -p '{"data":{"b":"2"}}'""")
        assert watch.line() == ["MODIFIED", "seen", "2", "AGE"]
        kubectl("delete cm seen")
        assert watch.line() == ["DELETED", "seen", "2", "AGE"]


def test_a_watch_follows_a_selector(kubectl: Kubectl) -> None:
    kubectl("create cm moving")
    with (
        kubectl.watching("get cm -l s -w --output-watch-events --show-labels") as watch,
        kubectl.watching("get cm moving --watch-only -o jsonpath='{.metadata.labels}{\"\\n\"}'") as values,
    ):
        kubectl("label cm moving s=1")
        assert watch.line() == ["EVENT", "NAME", "DATA", "AGE", "LABELS"]
        assert watch.line() == ["ADDED", "moving", "0", "AGE", "s=1"]
        assert values.line() == ['{"s":"1"}']
        kubectl("label cm moving s=2 --overwrite")
        assert watch.line() == ["MODIFIED", "moving", "0", "AGE", "s=2"]
        kubectl("label cm moving s-")
        assert watch.line() == ["DELETED", "moving", "0", "AGE", "s=2"]


def test_describe_tells_all_about_an_object(kubectl: Kubectl) -> None:
    kubectl("create -f -", OBJECTS + "---" + POD)
    kubectl("create deployment web --image=nginx:1")
    described = kubectl("describe cm a")
    assert described.splitlines()[:4] == [
        "Name:         a",
        f"Namespace:    {kubectl.namespace}",
        "Labels:       app=x",
        "              tier=front",
    ]
    assert "k:\n----\nv\n" in described
    assert described.endswith("Events:  <none>\n")
    assert "Type:  Opaque\n" in kubectl("describe secret s")
    pod = kubectl("describe pod p")
    for line in ("Node:             there/", "Status:           Pending", "    Image:      nginx", "      A:  b"):
        assert f"\n{line}\n" in pod
    assert "\nReplicas:               1 desired | 0 updated | 0 total | 0 available | 0 unavailable\n" in kubectl(
        "describe deploy web"
    )
    service = kubectl.run("describe svc svc")
    assert service.returncode == 0
    assert ["Selector:", "app=x"] in cells(service.stdout)
    assert kubectl(f"describe ns {kubectl.namespace}").endswith(
        "Status:       Active\n\nNo resource quota.\n\nNo LimitRange resource.\n"
    )
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {
            "kind": "Pod",
            "name": "p",
            "namespace": kubectl.namespace,
            "uid": kubectl.value("pod p", ".metadata.uid"),
        },
        "reason": "Scheduled",
        "message": "it fits",
        "type": "Normal",
        "source": {"component": "tester"},
    }
    kubectl("create -f -", orjson.dumps(event).decode())
    assert [cell for cell in kubectl.table("describe pod p")[-1] if cell] == [
        "Normal",
        "Scheduled",
        "AGE",
        "tester",
        "it fits",
    ]
    assert kubectl.fails("describe cm nope") == 'Error from server (NotFound): configmaps "nope" not found'


def test_explain_knows_the_fields_of_every_kind(kubectl: Kubectl) -> None:
    assert kubectl.table("explain cm")[:2] == [["KIND:", "ConfigMap"], ["VERSION:", "v1"]]
    field = kubectl("explain deployment.spec.strategy")
    assert field.splitlines()[:5] == [
        "GROUP:      apps",
        "KIND:       Deployment",
        "VERSION:    v1",
        "",
        "FIELD: strategy <DeploymentStrategy>",
    ]
    assert "  rollingUpdate\t<RollingUpdateDeployment>\n" in field
    nested = kubectl("explain pod.spec.containers --recursive")
    for line in (
        "  image\t<string>",
        "    containerPort\t<integer> -required-",
        "      configMapKeyRef\t<ConfigMapKeySelector>",
    ):
        assert line in nested
    assert "VERSION:    v1\n" in kubectl("explain hpa --api-version=autoscaling/v1")
    unknown = kubectl.run("explain deployment.spec.nope")
    assert (unknown.returncode, unknown.stderr) == (1, 'error: field "nope" does not exist\n')


def test_wait_returns_when_it_has_come_true(kubectl: Kubectl) -> None:
    kubectl("create -f -", OBJECTS + "---" + POD)
    with kubectl.watching("wait --for=jsonpath='{.data.k}'=new cm/a --timeout=50s") as waiting:
        kubectl("""patch cm a -p '{"data":{"k":"new"}}'""")
        assert waiting.rest() == "configmap/a condition met\n"
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    with kubectl.watching("wait --for=condition=Ready pod/p --timeout=50s") as waiting:
        kubectl(f"patch pod p --subresource=status -p '{ready}'")
        assert waiting.rest() == "pod/p condition met\n"
    with kubectl.watching("wait --for=delete cm -l app=x --timeout=50s") as waiting:
        kubectl("delete cm -l app=x")
        assert waiting.rest() == "configmap/a condition met\nconfigmap/b condition met\n"
    assert kubectl("wait --for=delete cm/a --timeout=1s") == ""
    assert kubectl.fails("wait --for=jsonpath='{.data.k}'=never cm/c --timeout=100ms") == (
        "error: timed out waiting for the condition on configmaps/c"
    )
    assert kubectl.fails("wait --for=condition=Ready cm/nope --timeout=1s") == (
        'Error from server (NotFound): configmaps "nope" not found'
    )
