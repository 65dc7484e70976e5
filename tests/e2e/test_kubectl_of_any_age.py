"""What every kubectl can do, also the old one of a distribution: only commands and flags that 1.20 has."""

import orjson
from kubectl_runner import Kubectl

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
data:
  colour: {colour}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {{app: web}}
  template:
    metadata:
      labels: {{app: web}}
    spec:
      containers:
        - name: c
          image: nginx:1
"""


def done(kubectl: Kubectl, command: str, stdin: str = "", code: int = 0) -> str:
    ended = kubectl.run(command, stdin)
    assert ended.returncode == code, f"kubectl {command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def field(kubectl: Kubectl, what: str, path: str) -> str:
    return done(kubectl, f"get {what} -o jsonpath={{{path}}}")


def test_objects_are_applied_changed_and_deleted(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    done(kubectl, "apply -f -", MANIFEST.format(colour="red"))
    assert "unchanged" in done(kubectl, "apply -f -", MANIFEST.format(colour="red"))
    assert "configmap/a configured" in done(kubectl, "apply -f -", MANIFEST.format(colour="blue"))
    assert field(kubectl, "cm/a", ".data.colour") == "blue"

    done(kubectl, "scale deploy web --replicas=3")
    done(kubectl, "set image deploy/web c=nginx:2")
    assert field(kubectl, "deploy/web", ".spec.replicas") == "3"
    assert field(kubectl, "deploy/web", ".spec.template.spec.containers[0].image") == "nginx:2"

    done(kubectl, "label cm a tier=front")
    done(kubectl, "annotate cm a note=x")
    done(kubectl, """patch cm a --type=merge -p '{"data":{"m":"1"}}'""")
    done(kubectl, """patch cm a --type=json -p '[{"op":"add","path":"/data/j","value":"1"}]'""")
    done(kubectl, """patch deploy web -p '{"spec":{"template":{"spec":{"containers":[{"name":"c","tty":true}]}}}}'""")
    found = orjson.loads(done(kubectl, "get cm a -o json"))
    assert found["data"] == {"colour": "blue", "m": "1", "j": "1"}
    assert found["metadata"]["labels"] == {"tier": "front"}

    done(kubectl, "delete deploy web")
    done(kubectl, "delete cm -l tier=front")
    assert "NotFound" in kubectl.run("get cm a").stderr


def test_a_server_dry_run_and_a_diff_write_nothing(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    done(kubectl, "create -f - --dry-run=server", MANIFEST.format(colour="red"))
    assert "NotFound" in kubectl.run("get cm a").stderr
    done(kubectl, "create -f -", MANIFEST.format(colour="red"))
    assert "+  colour: blue" in done(kubectl, "diff -f -", MANIFEST.format(colour="blue"), code=1)
    assert field(kubectl, "cm/a", ".data.colour") == "red"


def test_server_side_apply_tells_of_conflicts(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    done(kubectl, "apply --server-side --field-manager=one -f -", MANIFEST.format(colour="red"))
    other = MANIFEST.format(colour="blue")
    refused = kubectl.run("apply --server-side --field-manager=two -f -", other)
    assert refused.returncode != 0
    assert ".data.colour" in refused.stderr
    done(kubectl, "apply --server-side --force-conflicts --field-manager=two -f -", other)
    assert field(kubectl, "cm/a", ".data.colour") == "blue"


def test_everything_can_be_looked_at(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    done(kubectl, "create -f -", MANIFEST.format(colour="red"))
    assert done(kubectl, "get deploy,cm -o name").split() == [
        "deployment.apps/web",
        "configmap/a",
        "configmap/kube-root-ca.crt",
    ]
    assert "nginx:1" in done(kubectl, "get deploy -o wide")
    assert "Replicas:" in done(kubectl, "describe deploy web")
    assert "replicas" in done(kubectl, "explain deployment.spec")
    assert "deployments" in done(kubectl, "api-resources --api-group=apps")
    assert "apps/v1" in done(kubectl, "api-versions")
    done(kubectl, "wait --for=condition=Available deploy/web --timeout=1s", code=1)


def test_what_is_wrong_is_refused(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    refused = kubectl.run("create -f -", MANIFEST.format(colour="red").replace("data:", "dta:"))
    assert refused.returncode == 1
    assert 'unknown field "dta"' in refused.stderr
    assert "NotFound" in kubectl.run("get cm a").stderr
