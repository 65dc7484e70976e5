"""kubectl edit, patch, label, annotate, replace, scale and set."""

from __future__ import annotations

from kubectl_runner import Kubectl

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {a: "1"}}
spec:
  replicas: 0
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers:
      - {name: c1, image: "nginx:1", env: [{name: A, value: "1"}, {name: B, value: "2"}]}
      tolerations: [{key: k1, operator: Exists}]
"""
TEMPLATE = '{{"spec":{{"template":{{"spec":{}}}}}}}'


def template(patch: str) -> str:
    return TEMPLATE.format(patch)


def test_an_editor_changes_an_object_or_leaves_it(kubectl: Kubectl) -> None:
    script = kubectl.home / "editor"
    script.write_text('#!/bin/sh\nsed -i "$EDIT" "$1"\n')
    script.chmod(0o755)
    assert kubectl("create cm c --from-literal=colour=red") == "configmap/c created\n"
    assert kubectl("edit cm c", KUBE_EDITOR=str(script), EDIT="s/colour: red/colour: blue/") == "configmap/c edited\n"
    assert kubectl.value("cm c", ".data} {.metadata.managedFields[*].manager") == (
        '{"colour":"blue"} kubectl-create kubectl-edit'
    )
    before = kubectl.object("cm c")
    idle = kubectl.run("edit cm c", EDITOR="true")
    assert (idle.returncode, idle.stdout, idle.stderr) == (0, "", "Edit cancelled, no changes made.\n")
    renamed = kubectl.run("edit cm c", KUBE_EDITOR=str(script), EDIT="s/^  name: .*/  name: other/")
    assert (renamed.returncode, renamed.stdout) == (1, "")
    assert "At least one of apiVersion, kind and name was changed" in renamed.stderr
    assert kubectl.object("cm c") == before
    assert kubectl("create -f -", DEPLOYMENT) == "deployment.apps/d created\n"
    scaled = kubectl("edit deploy d", KUBE_EDITOR=str(script), EDIT="s/  replicas: 0/  replicas: 4/")
    assert scaled == "deployment.apps/d edited\n"
    assert kubectl.value("deploy d", ".spec.replicas} {.metadata.generation") == "4 2"


def test_a_strategic_patch_knows_the_keys_of_lists(kubectl: Kubectl) -> None:
    assert kubectl("create -f -", DEPLOYMENT) == "deployment.apps/d created\n"
    added = template('{"containers":[{"name":"c2","image":"redis"}]}')
    assert kubectl(f"patch deploy d -p '{added}'") == "deployment.apps/d patched\n"
    assert kubectl.value("deploy d", ".spec.template.spec.containers[*].name") == "c2 c1"
    fewer = template('{"containers":[{"name":"c1","env":[{"name":"B","$patch":"delete"},{"name":"C","value":"3"}]}]}')
    assert kubectl(f"patch deploy d -p '{fewer}'") == "deployment.apps/d patched\n"
    c1 = next(c for c in kubectl.object("deploy d")["spec"]["template"]["spec"]["containers"] if c["name"] == "c1")
    assert c1["env"] == [{"name": "C", "value": "3"}, {"name": "A", "value": "1"}]
    replaced = template('{"tolerations":[{"key":"k2","operator":"Exists"}]}')
    assert kubectl(f"patch deploy d -p '{replaced}' -o jsonpath='{{.spec.template.spec.tolerations[*].key}}'") == "k2"
    assert (
        kubectl("""patch deploy d -p '{"metadata":{"labels":{"a":null,"b":"2"}}}'""") == "deployment.apps/d patched\n"
    )
    assert kubectl("""patch deploy d -p '{"metadata":{"labels":{"a":null,"b":"2"}}}'""") == (
        "deployment.apps/d patched (no change)\n"
    )
    assert kubectl.value("deploy d", ".metadata.labels} {.metadata.generation") == '{"b":"2"} 4'
    nameless = template('{"containers":[{"image":"nameless"}]}')
    assert kubectl.fails(f"patch deploy d -p '{nameless}'") == (
        "Error from server (BadRequest): map: map[image:nameless] does not contain declared merge key: name"
    )
    assert kubectl.fails("""patch deploy d -p '{"spec":{"replicas":-1}}'""") == (
        'The Deployment "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


def test_a_merge_patch_replaces_lists_and_removes_by_null(kubectl: Kubectl) -> None:
    assert kubectl("create -f -", DEPLOYMENT) == "deployment.apps/d created\n"
    only = template('{"containers":[{"name":"only","image":"one"}]}')
    shown = kubectl(f"patch deploy d --type=merge -p '{only}' -o jsonpath='{{.spec.template.spec.containers[*].name}}'")
    assert shown == "only"
    assert kubectl("create cm c --from-literal=a=1 --from-literal=b=2") == "configmap/c created\n"
    (kubectl.home / "patch.yaml").write_text("data: {a: null, c: '3'}\n")
    assert kubectl("patch cm c --type=merge --patch-file=patch.yaml") == "configmap/c patched\n"
    assert kubectl.value("cm c", ".data") == '{"b":"2","c":"3"}'
    dry = """patch cm c --type=merge -p '{"data":null}' --dry-run=server -o jsonpath='{.data}'"""
    assert kubectl(dry) == ""
    assert kubectl.value("cm c", ".data") == '{"b":"2","c":"3"}'
    stale = """patch cm c --type=merge -p '{"metadata":{"resourceVersion":"1"},"data":{"z":"z"}}'"""
    assert kubectl.fails(stale) == (
        'Error from server (Conflict): Operation cannot be fulfilled on configmaps "c": the object has been modified;'
        " please apply your changes to the latest version and try again"
    )
    assert kubectl.fails("""patch cm nope --type=merge -p '{}'""") == (
        'Error from server (NotFound): configmaps "nope" not found'
    )


def test_a_json_patch_is_all_or_nothing(kubectl: Kubectl) -> None:
    assert kubectl("create cm c --from-literal=a=1 --from-literal=b=2") == "configmap/c created\n"
    operations = (
        '[{"op":"test","path":"/data/a","value":"1"},{"op":"replace","path":"/data/a","value":"9"},'
        '{"op":"move","from":"/data/b","path":"/data/m"},{"op":"copy","from":"/data/a","path":"/data/z"},'
        '{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]'
    )
    assert kubectl(f"patch cm c --type=json -p '{operations}' -o jsonpath='{{.data}} {{.metadata.labels}}'") == (
        '{"a":"9","m":"2","z":"9"} {"x":"y"}'
    )
    before = kubectl.object("cm c")
    half = '[{"op":"remove","path":"/data/a"},{"op":"remove","path":"/data/nope"}]'
    assert kubectl.fails(f"patch cm c --type=json -p '{half}'") == (
        "The request is invalid: the server rejected our request due to an error in our request"
    )
    assert "error decoding patch" in kubectl.fails("""patch cm c --type=json -p '{"data":{}}'""")
    assert kubectl.object("cm c") == before


def test_status_and_scale_are_patched_apart_from_the_object(kubectl: Kubectl) -> None:
    assert kubectl("create -f -", DEPLOYMENT) == "deployment.apps/d created\n"
    status = """patch deploy d --subresource=status --type=merge -p '{"status":{"replicas":3},"spec":{"replicas":8}}'"""
    assert kubectl(status) == "deployment.apps/d patched\n"
    assert kubectl.value("deploy d", ".status.replicas} {.spec.replicas} {.metadata.generation") == "3 0 1"
    assert kubectl("""patch deploy d --type=merge -p '{"status":{"replicas":9}}'""") == (
        "deployment.apps/d patched (no change)\n"
    )
    scale = """patch deploy d --subresource=scale --type=merge -p '{"spec":{"replicas":6}}'"""
    assert kubectl(scale) in ("scale.autoscaling/d patched\n", "deployment.apps/d patched\n")
    assert kubectl.value("deploy d", ".status.replicas} {.spec.replicas} {.metadata.generation") == "3 6 2"
    assert kubectl("get deploy d --subresource=scale -o jsonpath='{.kind} {.spec} {.status}'") == (
        'Scale {"replicas":6} {"replicas":3,"selector":"app=d"}'
    )
    assert kubectl.table("get deploy d --subresource=scale") == [
        ["NAME", "DESIRED", "AVAILABLE", "AGE"],
        ["d", "6", "3", "AGE"],
    ]


def test_scale_counts_only_on_what_it_was_told(kubectl: Kubectl) -> None:
    assert kubectl("create -f -", DEPLOYMENT) == "deployment.apps/d created\n"
    assert kubectl("scale deploy d --replicas=2") == "deployment.apps/d scaled\n"
    assert kubectl("scale deploy/d --current-replicas=2 --replicas=3") == "deployment.apps/d scaled\n"
    assert kubectl.fails("scale deploy/d --current-replicas=5 --replicas=1") == (
        "error: Expected replicas to be 5, was 3"
    )
    assert kubectl("scale deploy d --replicas=9 --dry-run=server") == "deployment.apps/d scaled (server dry run)\n"
    assert kubectl.value("deploy d", ".spec.replicas") == "3"
    assert kubectl("create cm c") == "configmap/c created\n"
    assert kubectl.fails("scale cm c --replicas=1") == (
        "Error from server (NotFound): the server could not find the requested resource"
    )


def test_labels_and_annotations_are_set_overwritten_and_removed(kubectl: Kubectl) -> None:
    assert kubectl("create cm a") + kubectl("create cm b") == "configmap/a created\nconfigmap/b created\n"
    assert kubectl("label cm a b x=1 y=2") == "configmap/a labeled\nconfigmap/b labeled\n"
    assert kubectl.fails("label cm a x=2") == ("error: 'x' already has a value (1), and --overwrite is false")
    assert kubectl("label cm a x=2 --overwrite") == "configmap/a labeled\n"
    assert kubectl("label cm a y-") == "configmap/a unlabeled\n"
    assert kubectl("label cm -l x=1 z=3") == "configmap/b labeled\n"
    assert kubectl.table("get cm -l x --show-labels") == [
        ["NAME", "DATA", "AGE", "LABELS"],
        ["a", "0", "AGE", "x=2"],
        ["b", "0", "AGE", "x=1,y=2,z=3"],
    ]
    assert kubectl("annotate cm a example.com/note='some text' --dry-run=server") in (
        "configmap/a annotated (server dry run)\n",
        "configmap/a annotate (server dry run)\n",  # kubectl 1.27
    )
    assert kubectl("annotate cm a example.com/note='some text'").startswith("configmap/a annotate")
    assert kubectl.value("cm a", ".metadata.annotations") == '{"example.com/note":"some text"}'
    assert kubectl("annotate cm a example.com/note-").startswith("configmap/a annotate")
    assert kubectl.value("cm a", ".metadata.annotations") == ""
    refusal = kubectl.fails("label cm a 'x=not a value' --overwrite")
    assert "not a value" in refusal


def test_replace_insists_on_the_version_it_was_given(kubectl: Kubectl) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    (kubectl.home / "a.yaml").write_text(manifest)
    assert kubectl.fails("replace -f a.yaml") == (
        'Error from server (NotFound): error when replacing "a.yaml": configmaps "a" not found'
    )
    assert kubectl("create -f a.yaml") == "configmap/a created\n"
    unchanged = kubectl.object("cm a")
    assert kubectl("replace -f a.yaml") == "configmap/a replaced\n"
    assert kubectl.object("cm a")["metadata"]["uid"] == unchanged["metadata"]["uid"]
    live = kubectl("get cm a -o json")
    assert kubectl("label cm a x=1") == "configmap/a labeled\n"
    assert kubectl.fails("replace -f -", live) == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on configmaps "a":'
        " the object has been modified; please apply your changes to the latest version and try again"
    )
    newer = kubectl("get cm a -o json").replace('"v"', '"w"')
    assert kubectl("replace -f - --dry-run=server", newer) == "configmap/a replaced (server dry run)\n"
    assert kubectl("replace -f -", newer) == "configmap/a replaced\n"
    assert kubectl.value("cm a", ".data} {.metadata.labels") == '{"k":"w"} {"x":"1"}'
    assert kubectl("replace --force -f a.yaml") == kubectl.deleted("configmap", "a") + "configmap/a replaced\n"
    forced = kubectl.object("cm a")
    assert (forced["data"], forced["metadata"].get("labels")) == ({"k": "v"}, None)
    assert forced["metadata"]["uid"] != unchanged["metadata"]["uid"]


def test_set_changes_images_environments_and_resources(kubectl: Kubectl) -> None:
    assert kubectl("create -f -", DEPLOYMENT) == "deployment.apps/d created\n"
    assert kubectl("set image deploy/d c1=nginx:2") == "deployment.apps/d image updated\n"
    assert kubectl("set env deploy/d A- D=4") == "deployment.apps/d env updated\n"
    assert kubectl("set resources deploy/d --limits=cpu=1500m,memory=1Gi") == (
        "deployment.apps/d resource requirements updated\n"
    )
    [container] = kubectl.object("deploy d")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "nginx:2"
    assert container["env"] == [{"name": "B", "value": "2"}, {"name": "D", "value": "4"}]
    assert container["resources"] == {"limits": {"cpu": "1500m", "memory": "1Gi"}}
