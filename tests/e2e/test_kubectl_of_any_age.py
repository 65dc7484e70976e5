"""What every kubectl can do, also the old one of a distribution: only commands and flags that 1.20 has.

Each verb is here once.  What it prints, to the letter, is in the transcripts of tests/conformance.
"""

import orjson
from hub_process import eventually
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


def owned(kubectl: Kubectl, name: str) -> None:
    """A ConfigMap with the name, and one that it owns."""
    done(kubectl, f"create cm {name}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "blockOwnerDeletion": True}
    reference["uid"] = field(kubectl, f"cm/{name}", ".metadata.uid")
    metadata = {"name": f"{name}-child", "ownerReferences": [reference]}
    done(kubectl, "create -f -", orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).decode())


def left(kubectl: Kubectl) -> list[str]:
    return [name for name in done(kubectl, "get cm -o name").split() if name != "configmap/kube-root-ca.crt"]


def test_what_is_owned_ends_with_its_owner_unless_it_is_orphaned(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    for name in ("background", "foreground", "orphan"):
        owned(kubectl, name)
        done(kubectl, f"delete cm {name} --cascade={name} --timeout=50s")
    eventually(lambda: left(kubectl) == ["configmap/orphan-child"], "the end of what was owned")
    assert field(kubectl, "cm/orphan-child", ".metadata.ownerReferences") == ""


def test_an_object_is_watched_edited_and_replaced(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    done(kubectl, "create cm a --from-literal=colour=red")
    before = done(kubectl, "get cm a -o json")
    with kubectl.watching("get cm -w --output-watch-events --field-selector metadata.name=a") as watch:
        assert watch.line() == ["EVENT", "NAME", "DATA", "AGE"]
        assert watch.line() == ["ADDED", "a", "1", "AGE"]
        edited = kubectl.run("edit cm a", KUBE_EDITOR="sed -i s/colour:/color:/")
        assert (edited.returncode, edited.stdout) == (0, "configmap/a edited\n")
        assert watch.line() == ["MODIFIED", "a", "1", "AGE"]
        assert "the object has been modified" in kubectl.run("replace -f -", before).stderr
        done(kubectl, "replace -f -", done(kubectl, "get cm a -o json").replace("red", "blue"))
        assert watch.line() == ["MODIFIED", "a", "1", "AGE"]
        done(kubectl, "delete cm a")
        assert watch.line() == ["DELETED", "a", "1", "AGE"]


def test_a_user_may_do_what_a_binding_grants(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    assert done(kubectl, "auth can-i get configmaps --as ann", code=1) == "no\n"
    done(kubectl, "create rolebinding ann --clusterrole view --user ann")
    assert done(kubectl, "auth can-i get configmaps --as ann") == "yes\n"
    assert done(kubectl, "get configmaps -o name --as ann") == "configmap/kube-root-ca.crt\n"
    assert "cannot list resource" in kubectl.run("get secrets --as ann").stderr
    done(kubectl, "delete rolebinding ann")
    assert done(kubectl, "auth can-i get configmaps --as ann", code=1) == "no\n"


def test_workloads_are_run_and_exposed(oldest_kubectl: Kubectl) -> None:
    kubectl = oldest_kubectl
    done(kubectl, "create deployment web --image=nginx:1 --port=80 --replicas=2")
    done(kubectl, "expose deployment web --target-port=8080")
    done(kubectl, "run single --image=nginx --env=A=b")
    assert field(kubectl, "svc/web", ".spec.ports[0].targetPort") == "8080"
    assert done(kubectl, "get all -o name").split() == ["pod/single", "service/web", "deployment.apps/web"]
    assert "deployment.apps/web" in done(kubectl, "rollout history deployment/web")
