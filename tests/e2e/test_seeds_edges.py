"""The fourth stage of the scenario of two edge clusters and two workloads, typed as printed: what runs at the edges.
Then the changes that were tried with the original there, and what happens when a part of it is killed.

`kind create cluster --name florin` is `farflung edge create florin`, with the same file, and TMC is `farflung syncer`.

The original does some of it wrong, and what is right is expected here: it returns no status, it fails to follow what
changes at the edge, and what is placed elsewhere stays where it was.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import orjson
import pytest
from audited_controllers import audit_options, check_administrators, check_controllers
from executable import Directory
from hub_process import HubProcess
from kubectl_runner import kubectls
from own_ports import own_ports
from seed_mailboxes import FLORIN, GUILDER, find_mailboxes
from seed_session import Session, Terminal
from seed_transcripts import COMMON, IN_PROVIDER, INVENTORY, MAILBOXES, SPECIAL

from farflung.edge.registry import EdgeRegistry

pytestmark = pytest.mark.long

CONFIGURATIONS = {
    "florin-config.yaml": """\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
- role: control-plane
  extraPortMappings:
  - containerPort: 8081
    hostPort: 8081
""",
    "guilder-config.yaml": """\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
- role: control-plane
  extraPortMappings:
  - containerPort: 8081
    hostPort: 8083
  - containerPort: 8082
    hostPort: 8082
""",
}
EDGES = """\
export EDGE=$HOME/.kube/config
export KUBECONFIG=$EDGE
farflung edge create florin --config florin-config.yaml --runtime process & florin=$!
farflung edge create guilder --config guilder-config.yaml --runtime process & guilder=$!
wait $florin
wait $guilder
export KUBECONFIG=$PWD/.kcp/admin.kubeconfig:$EDGE
"""
REGISTERED = """\
$ farflung syncer-gen sync-target-f --workspace root:imw-1 --syncer-kubeconfig florin.kubeconfig --allow-upsync group9.test/nines
Warning: rbac.authorization.k8s.io/rolebindings is not allowed, although a placement selects it; allow it with --allow
Warning: rbac.authorization.k8s.io/roles is not allowed, although a placement selects it; allow it with --allow
Wrote florin.kubeconfig; run `farflung syncer --from-kubeconfig florin.kubeconfig --to-kubeconfig … --sync-target-name sync-target-f --sync-target-uid 7bc6d1b8-d870-4813-8c7a-bdf746513c12`
$ farflung syncer-gen sync-target-g --workspace root:imw-1 --syncer-kubeconfig guilder.kubeconfig
Warning: rbac.authorization.k8s.io/rolebindings is not allowed, although a placement selects it; allow it with --allow
Warning: rbac.authorization.k8s.io/roles is not allowed, although a placement selects it; allow it with --allow
Wrote guilder.kubeconfig; run `farflung syncer --from-kubeconfig guilder.kubeconfig --to-kubeconfig … --sync-target-name sync-target-g --sync-target-uid 51a16dd7-5b8b-438a-9caa-d5f1d4388327`
"""  # noqa: E501
SYNCER = """\
$ farflung syncer --from-kubeconfig {0}.kubeconfig --to-kubeconfig $EDGE --to-context kind-{0} --sync-target-name {1} --sync-target-uid ${2} --state-directory {0}-syncer -v 2
I1115 20:12:47.031833   29643 syncer.go:59] "starting syncer" syncTargetName="{1}" objects={3}
"""  # noqa: E501
PAGE = """\
<!DOCTYPE html>
<html>
  <body>
    This is {}.
  </body>
</html>
"""
AT_THE_EDGES = f"""\
$ kubectl get --context kind-florin ns | grep stuff
commonstuff          Active   8h
$ kubectl get --context kind-florin Deployment -n commonstuff
NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commond   1/1     1            1           8h
$ kubectl get --context kind-guilder ns | grep stuff
commonstuff          Active   8h
specialstuff         Active   8h
$ kubectl get --context kind-guilder Deployment -A | grep stuff
commonstuff          commond                  1/1     1            1           8h
specialstuff         speciald                 1/1     1            1           8h
$ curl http://localhost:8081
{PAGE.format("a common web site")}
$ curl http://localhost:8082
{PAGE.format("a special web site")}
$ curl http://localhost:8083
{PAGE.format("a common web site")}
"""
REPORTED = """\
$ kubectl get deployments -A $AT_FLORIN
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   1/0     1            1           13m
$ kubectl get deployments -A $AT_GUILDER
NAMESPACE      NAME       READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff    commond    1/0     1            1           8m26s
specialstuff   speciald   1/0     1            1           8m26s
$ kubectl get locations $AT_INVENTORY
NAME         RESOURCE      AVAILABLE   INSTANCES   LABELS   AGE
location-f   synctargets   1           1                    3m7s
location-g   synctargets   1           1                    3m6s
$ kubectl get synctargets -o custom-columns='NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status' $AT_INVENTORY
NAME            READY
sync-target-f   True
sync-target-g   True
$ kubectl get syncerconfig the-one -o jsonpath='{.status.objects} {.status.problems}' $AT_FLORIN
{"failing":0,"orphaned":0,"pending":0,"synced":3,"upsynced":0} []
$ kubectl get syncerconfig the-one -o jsonpath='{.status.conditions[*].type} {.status.conditions[*].status}' $AT_GUILDER
EdgeReachable OrphansPresent Synced True False True
"""  # noqa: E501
SUMMARIZED = """\
$ kubectl get ssum -n specialstuff $AT_SPECIAL
NAME                                         KIND         OBJECT     EXPECTED   REPORTING   BROKEN   AGE
edge-placement-s.deployments.apps.speciald   Deployment   speciald   1          1           0        8m26s
$ kubectl get ssum -A $AT_COMMON
NAMESPACE     NAME                                        KIND         OBJECT    EXPECTED   REPORTING   BROKEN   AGE
commonstuff   edge-placement-c.deployments.apps.commond   Deployment   commond   2          2           0        13m
$ kubectl get ssum -n commonstuff edge-placement-c.deployments.apps.commond -o jsonpath='{.aggregates.readyReplicas.sum} {.conditions.Available} {.destinations}' $AT_COMMON
2 {"True":2} {"broken":0,"expected":2,"missing":0,"reporting":2,"stale":0}
$ farflung trace deployment/commond -n commonstuff --kubeconfig .kcp/admin.kubeconfig --context base --workspace root:my-org:wmw-c | tail -n 1
All 2 destinations are up to date.
$ farflung status --kubeconfig .kcp/admin.kubeconfig --context base | tail -n 3
2 edges: 2 ready
2 placements: none with problems
2 StatusSummaries: none with broken, missing or stale copies (kubectl get ssum -A)
"""  # noqa: E501
COUNTED = """\
$ kubectl patch deployment -n commonstuff commond --type=merge -p '{"spec":{"replicas":1}}' $AT_COMMON
deployment.apps/commond patched
$ kubectl get deployments -A $AT_FLORIN
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   1/1     1            1           13m
"""
RECORDED = """\
$ kubectl patch deployment -n commonstuff commond --type=merge -p '{"spec":{"replicas":2}}' $AT_FLORIN
deployment.apps/commond patched
$ kubectl get deployments -n commonstuff --context kind-florin
NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commond   1/2     2            1           28s
$ kubectl patch deployment -n commonstuff commond --type=merge -p '{"spec":{"replicas":5}}' --context kind-florin
deployment.apps/commond patched
$ kubectl get deployments -n commonstuff --context kind-florin
NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commond   1/2     2            1           43s
$ kubectl get deployments -A $AT_FLORIN
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   1/2     2            1           13m
$ kubectl delete cm -n commonstuff httpd-htdocs $AT_FLORIN
configmap "httpd-htdocs" deleted
$ kubectl get cm -n commonstuff --context kind-florin
NAME               DATA   AGE
kube-root-ca.crt   1      74s
"""
REPAIRED = """\
$ kubectl get cm -n commonstuff --context kind-florin
NAME               DATA   AGE
httpd-htdocs       1      1s
kube-root-ca.crt   1      74s
$ kubectl get deployments -n commonstuff --context kind-florin
NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commond   1/1     1            1           43s
$ kubectl patch deployment -n commonstuff commond --type=merge -p '{"spec":{"replicas":null}}' $AT_COMMON
deployment.apps/commond patched
$ kubectl get deployments -A $AT_FLORIN
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   1/0     1            1           13m
"""
NINES = """\
cat <<EOF | kubectl apply {0} -f -
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: nines.group9.test}}
spec:
  group: group9.test
  names: {{kind: Nine, plural: nines, singular: nine, listKind: NineList}}
  scope: Cluster
  versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]
EOF
kubectl wait {0} --for=condition=Established crd/nines.group9.test
"""  # noqa: E501
UPSYNCED = """\
$ kubectl patch edgeplacement edge-placement-c --type=merge -p '{"spec":{"upsync":[{"apiGroup":"group9.test","resources":["nines"],"names":["*"]}]}}' $AT_COMMON
edgeplacement.edge.kcp.io/edge-placement-c patched
$ cat <<EOF | kubectl apply --context kind-florin -f -
apiVersion: group9.test/v1
kind: Nine
metadata: {name: n1, labels: {l: v}, annotations: {a: v}}
spec: {a: 1}
EOF
nine.group9.test/n1 created
$ kubectl get nines -o yaml $AT_FLORIN
apiVersion: v1
items:
- apiVersion: group9.test/v1
  kind: Nine
  metadata:
    annotations:
      a: v
      edge.kcp.io/upsynced: Nine/n1
      kcp.io/cluster: 2pwj7023iotdw303
    creationTimestamp: "2026-11-15T20:16:40Z"
    generation: 1
    labels:
      l: v
    name: n1
    resourceVersion: "1427"
    uid: a81e95fa-345f-48d3-8411-8e8b349a3296
  spec:
    a: 1
kind: List
metadata:
  resourceVersion: ""
$ kubectl patch nine n1 --type=merge -p '{"spec":{"a":2}}' --context kind-florin
nine.group9.test/n1 patched
$ kubectl get nine n1 -o jsonpath={.spec} $AT_FLORIN
{"a":2}
$ kubectl patch nine n1 --type=merge -p '{"spec":{"a":7}}' $AT_FLORIN
nine.group9.test/n1 patched
$ kubectl get nine n1 -o jsonpath={.spec} $AT_FLORIN
{"a":2}
$ kubectl get nine n1 -o jsonpath={.spec} --context kind-florin
{"a":2}
$ kubectl delete nine n1 --context kind-florin
nine.group9.test "n1" deleted
$ kubectl get nines $AT_FLORIN
No resources found
"""  # noqa: E501
MOVED = """\
$ kubectl patch edgeplacement edge-placement-s --type=merge -p '{"spec":{"locationSelectors":[{"matchExpressions":[{"key":"extended","operator":"DoesNotExist"}]}]}}' $AT_SPECIAL
edgeplacement.edge.kcp.io/edge-placement-s patched
$ kubectl get --context kind-florin Deployment -A | grep stuff
commonstuff          commond                  1/1     1            1           8h
specialstuff         speciald                 1/1     1            1           8h
$ kubectl get --context kind-guilder ns | grep stuff
commonstuff          Active   8h
$ kubectl get --context kind-guilder Deployment -A | grep stuff
commonstuff          commond                  1/1     1            1           8h
$ kubectl get deployments -A $AT_GUILDER
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   1/0     1            1           8m26s
$ kubectl patch edgeplacement edge-placement-s --type=merge -p '{"spec":{"locationSelectors":[{"matchLabels":{"env":"prod","extended":"si"}}]}}' $AT_SPECIAL
edgeplacement.edge.kcp.io/edge-placement-s patched
$ kubectl get --context kind-florin ns | grep stuff
commonstuff          Active   8h
$ kubectl get --context kind-guilder Deployment -A | grep stuff
commonstuff          commond                  1/1     1            1           8h
specialstuff         speciald                 1/1     1            1           8h
"""  # noqa: E501
SILENT = """\
$ kubectl get ssum -n commonstuff edge-placement-c.deployments.apps.commond -o jsonpath='{.destinations} {.broken[*].locationName} {.broken[*].reason}' $AT_COMMON
{"broken":2,"expected":2,"missing":0,"reporting":2,"stale":2} location-f location-g HeartbeatMissing EdgeUnreachable
"""  # noqa: E501
HEARD = """\
$ kubectl get ssum -n commonstuff edge-placement-c.deployments.apps.commond -o jsonpath='{.destinations} {.broken}' $AT_COMMON
{"broken":0,"expected":2,"missing":0,"reporting":2,"stale":0}
"""  # noqa: E501
UNSHAKEN = """\
$ kubectl get --context kind-florin ns | grep stuff
commonstuff          Active   8h
$ kubectl get syncerconfig the-one -o jsonpath='{.status.objects} {.status.problems}' $AT_FLORIN
{"failing":0,"orphaned":0,"pending":0,"synced":3,"upsynced":0} []
"""


class Story:
    """The scenario, running."""

    def __init__(self, directory: Directory, undo: ExitStack) -> None:
        self._directory = directory
        self._undo = undo
        for name, content in CONFIGURATIONS.items():
            (directory.path / name).write_text(directory.here(content))
        (directory.home / ".curlrc").write_text("silent\nshow-error\n")  # as it is at a terminal
        self._start_hub()
        self.session = Session(directory, kubectls()[-1], self.hub)
        self.syncers: dict[str, Terminal] = {}
        undo.callback(self.session.run, "farflung edge delete --all")
        undo.callback(self.session.kill)
        self.session.run(EDGES)

    def _start_hub(self, *arguments: str, port: int = 0) -> None:
        directory = self._directory.path / ".kcp"
        options = [*arguments, *audit_options(directory)]
        self.hub = HubProcess(directory, command="start", port=port, arguments=options)
        self._undo.callback(self.hub.kill)

    def restart_hub(self, *arguments: str) -> None:
        """Killed in the middle of whatever it does, and started again."""
        self.hub.kill()
        self._start_hub(*arguments, port=self.hub.port)

    def restart_edge(self, name: str) -> None:
        """The same, with all that it runs."""
        self.kill_edge(name)
        self.session.run(f"farflung edge start {name}")

    def kill_edge(self, name: str) -> None:
        os.kill(EdgeRegistry(self._directory.home / ".farflung").existing(name).phase.pid, signal.SIGKILL)

    def restart_syncer(self, name: str) -> None:
        """The same.  How many objects it remembers depends on the moment."""
        self.syncers[name].kill()
        self.connect(name, "…")

    def connect(self, name: str, objects: str = "0") -> None:
        self.session.type(SYNCER.format(name, f"sync-target-{name[0]}", f"{name.upper()}_UID", objects))
        self.syncers[name] = self.session.terminals[-1]

    def change_page(self, words: str) -> None:
        """Of the common workload, where it is described."""
        patch = orjson.dumps({"data": {"index.html": PAGE.format(words)}}).decode()
        self.session.run(f"kubectl patch cm -n commonstuff httpd-htdocs --type=merge -p '{patch}' $AT_COMMON")

    def see_page(self, words: str) -> None:
        """At both edges."""
        page = PAGE.format(words)
        self.session.type(f"$ curl http://localhost:8081\n{page}$ curl http://localhost:8083\n{page}")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Its first three stages, and both edges connected."""
    if not kubectls():
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    with own_ports() as ports, ExitStack() as undo:
        story = Story(Directory(tmp_path_factory.mktemp("seeds"), ports), undo)
        story.session.type(INVENTORY + COMMON + SPECIAL + IN_PROVIDER + MAILBOXES)
        find_mailboxes(story.session)
        story.session.type(FLORIN + GUILDER + REGISTERED)
        story.connect("florin")
        story.connect("guilder")
        yield story
        for syncer in story.syncers.values():
            syncer.end()
        assert story.hub.trouble() == []
        check_controllers(story.hub)
        check_administrators(story.hub)


def test_both_workloads_run_where_they_should(story: Story) -> None:
    story.session.type(AT_THE_EDGES)


def test_what_the_edges_say_comes_back(story: Story) -> None:
    story.session.type(REPORTED)


def test_what_all_edges_say_is_summarized_where_the_workload_is_described(story: Story) -> None:
    story.session.type(SUMMARIZED)


def test_an_edge_follows_only_its_mailbox(story: Story) -> None:
    """As it was recorded: without controllers, which would keep the copies as they should be."""
    story.session.type(COUNTED)
    story.restart_hub("--no-controllers")
    story.session.type(RECORDED)
    story.restart_hub()
    story.session.type(REPAIRED)


def test_what_is_born_at_an_edge_comes_to_its_mailbox_and_follows_its_changes(story: Story) -> None:
    for where in ("--context kind-florin", "$AT_FLORIN"):
        story.session.run(NINES.format(where))
    story.session.type(UPSYNCED)


def test_a_workload_moves_with_its_placement(story: Story) -> None:
    story.session.type(MOVED)


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(lambda story: story.restart_syncer("florin"), id="the syncer"),
        pytest.param(lambda story: story.restart_hub(), id="the hub"),
        pytest.param(lambda story: story.restart_edge("florin"), id="the edge"),
    ],
)
def test_a_change_arrives_although_one_is_killed_in_the_middle(story: Story, kill: Callable[[Story], None]) -> None:
    story.change_page("another web site")
    kill(story)
    story.see_page("another web site")
    story.change_page("a common web site")
    story.see_page("a common web site")
    story.session.type(UNSHAKEN)


def test_edges_that_fall_silent_are_stale_within_the_time_that_was_set_and_come_back(story: Story) -> None:
    story.session.type(HEARD)
    story.restart_hub("--stale-after", "25")
    story.syncers["florin"].kill()
    story.kill_edge("guilder")
    story.session.type(SILENT)
    story.connect("florin", "…")
    story.session.run("farflung edge start guilder")
    story.session.type(HEARD)
