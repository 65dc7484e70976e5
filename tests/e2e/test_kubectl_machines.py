"""Virtual machines as Pods, with a real kubectl: created, changed, bound to a cluster, and looked at."""

from __future__ import annotations

from collections.abc import Callable

from seed_machine import MACHINE
from seed_session import Session

WORKSPACE = r"""
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create shop --enter
Workspace "shop" (type root:organization) created. Waiting for it to be ready...
Workspace "shop" (type root:organization) is ready to use.
Current workspace is "root:shop" (type root:organization).
$ kubectl apply -f - <<EOF
apiVersion: apis.kcp.io/v1alpha1
kind: APIBinding
metadata: {name: kubernetes}
spec: {reference: {export: {path: "root:compute", name: kubernetes}}}
EOF
apibinding.apis.kcp.io/kubernetes created
$ kubectl apply -f config/globalscheduler/imports/
apibinding.apis.kcp.io/globalscheduler.com created
"""
WALK = r"""
$ cat >vm.yaml <<EOF
{machine}EOF
$ kubectl apply -f vm.yaml
pod/demovm created
$ kubectl apply -f vm.yaml
pod/demovm unchanged
$ sed -i s/region1/region2/ vm.yaml
$ kubectl apply -f vm.yaml
pod/demovm configured
$ kubectl get pod demovm -o jsonpath='{.spec.virtualMachine.resourceCommonInfo.selector.regions}'
[{"region":"region2"}]
$ kubectl get pods
NAME     READY   STATUS    RESTARTS   AGE
demovm   -       Pending   0          1s
$ kubectl create --raw /clusters/root:shop/api/v1/namespaces/default/pods/demovm/binding -f - <<EOF
{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "demovm"}, "target": {"kind": "Cluster", "name": "az1"}}
EOF
{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}
$ kubectl describe pods demovm | grep -e ^Node: -e ^Status: -e PodScheduled
Node:         az1/
Status:       Pending
  PodScheduled   True
$ kubectl get pod demovm -o jsonpath='{.spec.nodeName} {.spec.clusterName}'
az1 az1
"""
CLUSTERS = r"""
$ kubectl apply -f - <<EOF
apiVersion: globalscheduler.com/v1
kind: Cluster
metadata: {name: az1}
spec:
  region: {region: region1, availabilityzone: az1}
  flavors: [{flavorid: c6.large.2, totalcapacity: 3}]
status: Ready
EOF
cluster.globalscheduler.com/az1 created
$ kubectl get clusters
NAME   REGION    ZONE   PHASE   STACKS   AGE
az1    region1   az1                     1s
$ kubectl explain cluster.spec.unschedulable | tail -n +6
DESCRIPTION:
    Whether it takes nothing new; what is there stays.
"""


def test_a_virtual_machine_is_created_changed_and_bound(start: Callable[..., Session]) -> None:
    session = start("--bare")
    session.type(WORKSPACE)
    session.type(WALK.replace("{machine}", MACHINE))
    session.type(CLUSTERS)
