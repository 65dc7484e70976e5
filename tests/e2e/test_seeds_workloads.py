"""The scenario of two edge clusters and two workloads, typed as printed on a new hub that runs the controllers: what
gets into the mailboxes.  Then the changes that were tried with the original, in its order.

It does some of them wrong, and what is right is expected here: it keeps a label that is gone at the source, and a copy
that somebody edits or deletes, until the source changes; it makes a namespace only for what is in it, and never
removes it; it tells syncers of a namespace that has lost its label, and does not tell them of an edited `upsync`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from seed_mailboxes import FLORIN, GUILDER, find_mailboxes
from seed_session import Session
from seed_transcripts import COMMON, IN_PROVIDER, INVENTORY, MAILBOXES, SPECIAL

COPY = (
    "kubectl get deployment -n commonstuff commond $AT_FLORIN -o jsonpath='"
    "{.metadata.generation} {.spec.replicas} {.metadata.labels} {.metadata.annotations.a1} "
    "{.metadata.annotations.touch}'"
)
CHANGES = f"""\
$ kubectl patch deployment -n commonstuff commond --type=merge -p '{{"spec":{{"replicas":3}},"metadata":{{"labels":{{"l1":"v1"}},"annotations":{{"a1":"v1"}}}}}}' $AT_COMMON
deployment.apps/commond patched
$ {COPY}
2 3 {{"edge.kcp.io/projected":"yes","l1":"v1"}} v1
$ kubectl label deployment -n commonstuff commond l1- $AT_COMMON
deployment.apps/commond unlabeled
$ {COPY}
2 3 {{"edge.kcp.io/projected":"yes"}} v1
$ kubectl patch deployment -n commonstuff commond --type=merge -p '{{"spec":{{"replicas":7}}}}' $AT_FLORIN
deployment.apps/commond patched
$ {COPY}
4 3 {{"edge.kcp.io/projected":"yes"}} v1
$ kubectl annotate deployment -n commonstuff commond touch=1 $AT_COMMON
deployment.apps/commond annotated
$ {COPY}
4 3 {{"edge.kcp.io/projected":"yes"}} v1 1
$ kubectl delete deployment -n commonstuff commond $AT_FLORIN
deployment.apps "commond" deleted
$ kubectl get deployments -A $AT_FLORIN
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   0/3     0            0           108s
$ kubectl create cm -n commonstuff extra --from-literal=a=b $AT_COMMON
configmap/extra created
$ kubectl get cm -A $AT_FLORIN
NAMESPACE     NAME               DATA   AGE
commonstuff   extra              1      4s
commonstuff   httpd-htdocs       1      66s
commonstuff   kube-root-ca.crt   1      67s
default       kube-root-ca.crt   1      102s
$ kubectl get cm -A $AT_GUILDER
NAMESPACE      NAME               DATA   AGE
commonstuff    extra              1      5s
commonstuff    httpd-htdocs       1      67s
commonstuff    kube-root-ca.crt   1      70s
default        kube-root-ca.crt   1      101s
specialstuff   httpd-htdocs       1      67s
specialstuff   kube-root-ca.crt   1      70s
$ kubectl delete cm -n commonstuff extra $AT_COMMON
configmap "extra" deleted
$ kubectl get cm -n commonstuff $AT_FLORIN
NAME               DATA   AGE
httpd-htdocs       1      72s
kube-root-ca.crt   1      73s
$ cat <<EOF | kubectl apply $AT_COMMON -f -
apiVersion: v1
kind: Namespace
metadata: {{name: more, labels: {{common: "si"}}}}
EOF
namespace/more created
$ kubectl get ns $AT_FLORIN
NAME          STATUS   AGE
commonstuff   Active   80s
default       Active   115s
more          Active   1s
$ cat <<EOF | kubectl apply $AT_COMMON -f -
apiVersion: v1
kind: ConfigMap
metadata: {{name: c2, namespace: more}}
data: {{x: "y"}}
EOF
configmap/c2 created
$ kubectl get cm -n more $AT_FLORIN
NAME               DATA   AGE
c2                 1      1s
kube-root-ca.crt   1      2s
$ kubectl get SyncerConfig the-one -o jsonpath={{.spec.namespaceScope.namespaces}} $AT_FLORIN
["commonstuff","more"]
$ kubectl label ns more common- $AT_COMMON
namespace/more unlabeled
$ kubectl get ns $AT_FLORIN
NAME          STATUS   AGE
commonstuff   Active   86s
default       Active   2m1s
$ kubectl get cm -n more $AT_FLORIN
No resources found in more namespace.
$ kubectl get SyncerConfig the-one -o jsonpath={{.spec.namespaceScope.namespaces}} $AT_FLORIN
["commonstuff"]
$ kubectl create clusterrole foo --verb=get --resource=configmaps $AT_COMMON; kubectl patch edgeplacement edge-placement-c --type=merge -p '{{"spec":{{"nonNamespacedObjects":[{{"apiGroup":"apis.kcp.io","resources":["apibindings"],"resourceNames":["bind-kube"]}},{{"apiGroup":"rbac.authorization.k8s.io","resources":["clusterroles"],"resourceNames":["foo"]}}]}}}}' $AT_COMMON
clusterrole.rbac.authorization.k8s.io/foo created
edgeplacement.edge.kcp.io/edge-placement-c patched
$ kubectl get clusterroles -o name $AT_FLORIN
clusterrole.rbac.authorization.k8s.io/foo
$ kubectl get clusterrole foo -o jsonpath='{{.rules}} {{.metadata.labels}}' $AT_FLORIN
[{{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}}] {{"edge.kcp.io/projected":"yes"}}
$ kubectl get SyncerConfig the-one -o jsonpath='{{.spec.clusterScope}} {{.spec.namespaceScope.namespaces}}' $AT_FLORIN
[{{"apiVersion":"v1","group":"rbac.authorization.k8s.io","objects":["foo"],"resource":"clusterroles"}}] ["commonstuff"]
$ kubectl patch edgeplacement edge-placement-c --type=merge -p '{{"spec":{{"upsync":[{{"apiGroup":"group9.test","resources":["nines"],"names":["*"]}}]}}}}' $AT_COMMON
edgeplacement.edge.kcp.io/edge-placement-c patched
$ kubectl get SyncerConfig the-one -o jsonpath={{.spec.upsync}} $AT_FLORIN
[{{"apiGroup":"group9.test","names":["*"],"resources":["nines"]}}]
$ kubectl get SyncerConfig the-one -o jsonpath='{{.spec.upsync[*].apiGroup}}' $AT_GUILDER
group1.test group3.test group9.test
$ kubectl patch edgeplacement edge-placement-s --type=merge -p '{{"spec":{{"locationSelectors":[{{"matchLabels":{{"env":"none"}}}}]}}}}' $AT_SPECIAL
edgeplacement.edge.kcp.io/edge-placement-s patched
$ kubectl get sps -o jsonpath='{{.items[*].metadata.name}}: {{.items[*].destinations}}' $AT_SPECIAL
edge-placement-s: []
$ kubectl get deployments -A $AT_GUILDER
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   0/3     0            0           108s
$ kubectl get ns $AT_GUILDER
NAME          STATUS   AGE
commonstuff   Active   113s
default       Active   2m25s
$ kubectl get SyncerConfig the-one -o jsonpath='{{.spec.upsync[*].apiGroup}} {{.spec.namespaceScope.namespaces}}' $AT_GUILDER
group9.test ["commonstuff"]
$ kubectl patch edgeplacement edge-placement-s --type=merge -p '{{"spec":{{"locationSelectors":[{{"matchLabels":{{"env":"prod","extended":"si"}}}}]}}}}' $AT_SPECIAL
edgeplacement.edge.kcp.io/edge-placement-s patched
$ kubectl get deployments -A $AT_GUILDER
NAMESPACE      NAME       READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff    commond    0/3     0            0           119s
specialstuff   speciald   0/0     0            0           9s
$ kubectl delete edgeplacement edge-placement-s $AT_SPECIAL
edgeplacement.edge.kcp.io "edge-placement-s" deleted
$ kubectl get sps $AT_SPECIAL
No resources found
$ kubectl get deployments -A $AT_GUILDER
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   0/3     0            0           2m9s
$ kubectl get ns $AT_GUILDER
NAME          STATUS   AGE
commonstuff   Active   2m14s
default       Active   2m46s
$ kubectl get SyncerConfig the-one -o jsonpath='{{.spec.clusterScope[*].objects}} {{.spec.namespaceScope.namespaces}}' $AT_GUILDER
["foo"] ["commonstuff"]
$ kubectl delete synctarget sync-target-g $AT_INVENTORY
synctarget.workload.kcp.io "sync-target-g" deleted
$ kubectl get workspaces
NAME                                                       TYPE        REGION   PHASE   URL                                                 AGE
30g5y7albwhkfhse-mb-7bc6d1b8-d870-4813-8c7a-bdf746513c12   universal            Ready   https://127.0.0.1:17643/clusters/2pwj7023iotdw303   2m59s
$ kubectl get locations $AT_INVENTORY
NAME         RESOURCE      AVAILABLE   INSTANCES   LABELS   AGE
location-f   synctargets   0           1                    3m7s
location-g   synctargets   0           0                    3m6s
$ kubectl get sps -o jsonpath='{{.items[*].destinations[*].syncTargetName}}' $AT_COMMON
sync-target-f
$ kubectl get edgeplacement edge-placement-c -o jsonpath='{{.status.conditions[?(@.type=="WorkloadProjected")].status}}' $AT_COMMON
True
"""  # noqa: E501


@pytest.mark.long
def test_a_new_hub_brings_the_workloads_to_the_mailboxes_and_follows_changes(start: Callable[..., Session]) -> None:
    session = start("--controllers")
    session.type(INVENTORY + COMMON + SPECIAL + IN_PROVIDER + MAILBOXES)
    find_mailboxes(session)
    session.type(FLORIN + GUILDER + CHANGES)
