"""kubectl apply, on the client's side and on the server's, and kubectl diff."""

from __future__ import annotations

from kubectl_runner import Kubectl

BOTH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: x}}
data: {k1: v1, k2: v2}
"""
ONE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {k1: changed}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "nginx:1", env: [{name: A, value: "1"}, {name: B, value: "2"}]}
      - {name: side, image: busybox}
"""
CONFLICT = """\
error: Apply failed with 1 conflict: conflict with "kubectl": .data.k1
Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
"""


def test_apply_creates_then_merges_three_ways_and_then_changes_nothing(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", BOTH) == "configmap/a created\n"
    first = kubectl.object("cm a")["metadata"]
    assert first["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] == (
        '{"apiVersion":"v1","data":{"k1":"v1","k2":"v2"},"kind":"ConfigMap","metadata":{"annotations":{},'
        f'"labels":{{"app":"x"}},"name":"a","namespace":"{kubectl.namespace}"}}}}\n'
    )
    assert kubectl("apply -f -", BOTH) == "configmap/a unchanged\n"
    assert kubectl.object("cm a")["metadata"] == first

    assert kubectl("""patch cm a --type=merge -p '{"data":{"foreign":"1"}}'""") == "configmap/a patched\n"
    assert kubectl("apply -f - --dry-run=server", ONE) == "configmap/a configured (server dry run)\n"
    assert kubectl.value("cm a", ".data") == '{"foreign":"1","k1":"v1","k2":"v2"}'
    assert kubectl("apply -f -", ONE) == "configmap/a configured\n"
    assert kubectl.value("cm a", ".data} {.metadata.labels") == '{"foreign":"1","k1":"changed"} '
    managers = [owner["manager"] for owner in kubectl.object("cm a")["metadata"]["managedFields"]]
    assert sorted(managers) == ["kubectl-client-side-apply", "kubectl-patch"]
    assert "k1: changed" in kubectl("apply view-last-applied cm a")

    assert kubectl("create cm b --from-literal=x=1") == "configmap/b created\n"
    adopted = kubectl.run("apply -f -", ONE.replace("name: a", "name: b"))
    assert (adopted.returncode, adopted.stdout) == (0, "configmap/b configured\n")
    assert "is missing the kubectl.kubernetes.io/last-applied-configuration annotation" in adopted.stderr
    assert kubectl.value("cm b", ".data") == '{"k1":"changed","x":"1"}'


def test_apply_merges_lists_by_their_keys_and_prunes_what_is_no_longer_said(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", DEPLOYMENT) == "deployment.apps/web created\n"
    assert kubectl("scale deploy web --replicas=5") == "deployment.apps/web scaled\n"
    sidecar = '{"spec":{"template":{"spec":{"containers":[{"name":"injected","image":"proxy"}]}}}}'
    assert kubectl(f"patch deploy web -p '{sidecar}'") == "deployment.apps/web patched\n"
    fewer = (
        DEPLOYMENT.replace("  replicas: 2\n", "").replace(', {name: B, value: "2"}', "").replace("nginx:1", "nginx:2")
    )
    assert kubectl("apply -f -", fewer) == "deployment.apps/web configured\n"
    spec = kubectl.object("deploy web")["spec"]
    assert spec["replicas"] == 1  # no longer said, so the default
    containers = {container["name"]: container for container in spec["template"]["spec"]["containers"]}
    assert set(containers) == {"injected", "main", "side"}
    assert (containers["main"]["image"], containers["main"]["env"]) == ("nginx:2", [{"name": "A", "value": "1"}])
    without = fewer.replace("      - {name: side, image: busybox}\n", "")
    assert kubectl("apply -f -", without) == "deployment.apps/web configured\n"
    assert sorted(kubectl.value("deploy web", ".spec.template.spec.containers[*].name").split()) == ["injected", "main"]
    before = kubectl.object("deploy web")
    assert kubectl("apply -f -", without) == "deployment.apps/web configured\n"  # it sends an order of containers
    assert kubectl.object("deploy web") == before


def test_apply_prunes_objects_that_are_no_longer_in_the_set(kubectl: Kubectl) -> None:
    keep, drop = BOTH.replace("name: a,", "name: keep,"), BOTH.replace("name: a,", "name: drop,")
    assert kubectl("apply -f -", keep) == "configmap/keep created\n"
    assert kubectl("apply -f -", drop) == "configmap/drop created\n"
    pruned = kubectl.run("apply -f - --prune -l app=x --prune-allowlist=core/v1/ConfigMap", keep)
    assert pruned.returncode == 0, pruned.stderr
    assert pruned.stdout == "configmap/keep unchanged\nconfigmap/drop pruned\n"
    assert kubectl("get cm -l app=x -o name") == "configmap/keep\n"


def test_server_side_apply_keeps_owners_apart_and_tells_of_conflicts(kubectl: Kubectl) -> None:
    second = ONE.replace("{k1: changed}", "{k1: other, k3: v3}")
    assert kubectl("apply --server-side -f -", BOTH) == "configmap/a serverside-applied\n"
    before = kubectl.object("cm a")
    assert kubectl("apply --server-side -f -", BOTH) == "configmap/a serverside-applied\n"
    assert kubectl.object("cm a") == before
    [owner] = before["metadata"]["managedFields"]
    assert (owner["manager"], owner["operation"], owner["fieldsV1"]) == (
        "kubectl",
        "Apply",
        {"f:data": {"f:k1": {}, "f:k2": {}}, "f:metadata": {"f:labels": {"f:app": {}}}},
    )
    assert kubectl.fails("apply --server-side --field-manager=second -f -", second).startswith(CONFLICT)
    assert kubectl.fails("apply --server-side --field-manager=second --dry-run=server -f -", second).startswith(
        CONFLICT
    )
    assert kubectl.object("cm a") == before

    assert kubectl("apply --server-side --field-manager=second --force-conflicts -f -", second) == (
        "configmap/a serverside-applied\n"
    )
    after = kubectl.object("cm a")
    assert after["data"] == {"k1": "other", "k2": "v2", "k3": "v3"}
    owned = {owner["manager"]: owner["fieldsV1"]["f:data"] for owner in after["metadata"]["managedFields"]}
    assert owned == {"kubectl": {"f:k2": {}}, "second": {"f:k1": {}, "f:k3": {}}}

    nothing = ONE.replace("data: {k1: changed}\n", "")
    assert kubectl("apply --server-side --field-manager=second -f -", nothing) == "configmap/a serverside-applied\n"
    assert kubectl.object("cm a")["data"] == {"k2": "v2"}
    typo = ONE.replace("\ndata:", "\ndta:")
    assert kubectl.fails("apply --server-side -f -", typo) == (
        "Error from server (BadRequest): failed to create typed patch object"
        f" ({kubectl.namespace}/a; /v1, Kind=ConfigMap): .dta: field not declared in schema"
    )


def test_server_side_apply_takes_over_from_the_client_and_spans_kinds(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", DEPLOYMENT) == "deployment.apps/web created\n"
    fewer = DEPLOYMENT.replace(', {name: B, value: "2"}', "")
    assert kubectl("apply --server-side -f -", fewer) == "deployment.apps/web serverside-applied\n"
    main = kubectl.object("deploy web")["spec"]["template"]["spec"]["containers"][0]
    assert (main["name"], main["env"]) == ("main", [{"name": "A", "value": "1"}])
    assert kubectl("scale deploy web --replicas=7") == "deployment.apps/web scaled\n"
    refusal = kubectl.fails("apply --server-side -f -", fewer)
    assert refusal.startswith('error: Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale"')
    assert ".spec.replicas" in refusal.splitlines()[0]
    free = fewer.replace("  replicas: 2\n", "")
    assert kubectl("apply --server-side -f -", free) == "deployment.apps/web serverside-applied\n"
    assert kubectl.value("deploy web", ".spec.replicas") == "7"


def test_diff_shows_what_apply_would_change_and_says_so_by_its_exit_code(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", BOTH) == "configmap/a created\n"
    assert kubectl("diff -f -", BOTH) == ""
    shown = kubectl.run("diff -f -", BOTH.replace("v1, k2", "new, k2"))
    assert (shown.returncode, shown.stderr) == (1, "")
    changed = [line for line in shown.stdout.splitlines() if line[0] in "+-"]
    assert [line.split()[0] for line in changed[:2]] == ["---", "+++"]
    assert changed[2:] == ["-  k1: v1", "+  k1: new"]
    fresh = kubectl.run("diff -f -", BOTH.replace("name: a", "name: fresh"))
    assert fresh.returncode == 1
    assert f"+  namespace: {kubectl.namespace}\n" in fresh.stdout
    assert "+  k1: v1\n" in fresh.stdout
    owned = kubectl.run("diff --server-side --field-manager=other -f -", ONE.replace("{k1: changed}", "{k4: v4}"))
    assert (owned.returncode, [line for line in owned.stdout.splitlines() if line[0] in "+-"][2:]) == (1, ["+  k4: v4"])
    assert kubectl.value("cm a", ".data") == '{"k1":"v1","k2":"v2"}'
    assert not kubectl.exists("cm fresh")
