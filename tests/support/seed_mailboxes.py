"""What the scenario of two edge clusters and two workloads prints of the mailboxes, once the workloads are there."""

from __future__ import annotations

from seed_session import Session
from seed_transcripts import mailbox_of

RESOURCES = """\
    - apiVersion: v1
      group: rbac.authorization.k8s.io
      resource: roles
    - apiVersion: v1
      group: apps
      resource: deployments
    - apiVersion: v1
      group: ""
      resource: configmaps
    - apiVersion: v1
      group: ""
      resource: secrets
    - apiVersion: v1
      group: ""
      resource: serviceaccounts
    - apiVersion: v1
      group: networking.k8s.io
      resource: ingresses
    - apiVersion: v1
      group: ""
      resource: resourcequotas
    - apiVersion: v1
      group: ""
      resource: services
    - apiVersion: v1
      group: ""
      resource: limitranges
    - apiVersion: v1
      group: ""
      resource: pods
    - apiVersion: v1
      group: rbac.authorization.k8s.io
      resource: rolebindings
    - apiVersion: v1
      group: coordination.k8s.io
      resource: leases
"""
FLORIN = f"""\
$ kubectl ws $FLORIN
Current workspace is "root:espw:2rp1gztc6m5b8b7r-mb-58f7e799-4653-422b-adba-b1e5e85a7fac" (type root:universal).
$ kubectl get SyncerConfig the-one -o yaml
apiVersion: edge.kcp.io/v1alpha1
kind: SyncerConfig
metadata:
  annotations:
    kcp.io/cluster: 2gqno7cdbsthqsmz
  creationTimestamp: "2023-04-18T04:32:50Z"
  generation: …
  name: the-one
  resourceVersion: "1653"
  uid: 47843727-bbe8-4660-8c25-4566fc0b6d70
spec:
  namespaceScope:
    namespaces:
    - commonstuff
    resources:
{RESOURCES}  upsync:
  - apiGroup: group2.test
    names:
    - William
    resources:
    - cogs
  - apiGroup: group1.test
    names:
    - george
    - cosmo
    namespaces:
    - orbital
    resources:
    - sprockets
    - flanges
status: {{}}
$ kubectl get ns
NAME          STATUS   AGE
commonstuff   Active   6m34s
default       Active   32m
$ kubectl get deployments -A
NAMESPACE     NAME      READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff   commond   0/0     0            0           6m44s
$ kubectl get configmaps,secrets,serviceaccounts,roles,rolebindings,leases,services,pods,ingresses,resourcequotas,limitranges -A
NAMESPACE     NAME                         DATA   AGE
commonstuff   configmap/httpd-htdocs       1      26s
commonstuff   configmap/kube-root-ca.crt   1      27s
default       configmap/kube-root-ca.crt   1      62s

NAMESPACE     NAME                     SECRETS   AGE
commonstuff   serviceaccount/default   0         27s
default       serviceaccount/default   0         62s
$ kubectl get configmap httpd-htdocs -n commonstuff -o jsonpath='{{.data.index\\.html}}{{.metadata.labels}}'
<!DOCTYPE html>
<html>
  <body>
    This is a common web site.
  </body>
</html>
{{"edge.kcp.io/projected":"yes"}}
$ kubectl get apibinding bind-edge bind-kube
NAME        AGE
bind-edge   62s
bind-kube   27s
$ kubectl get clusterroles,clusterrolebindings
NAME                                                           ROLE                        AGE
clusterrolebinding.rbac.authorization.k8s.io/workspace-admin   ClusterRole/cluster-admin   63s
$ kubectl get syncerconfigs,edgeplacements,sps
NAME                               SYNCED   PENDING   FAILING   HEARTBEAT   AGE
syncerconfig.edge.kcp.io/the-one                                            31s
"""  # noqa: E501
GUILDER = f"""\
$ kubectl ws root:espw
Current workspace is "root:espw".
$ kubectl ws $GUILDER
Current workspace is "root:espw:2rp1gztc6m5b8b7r-mb-31e5fa4d-a84e-4397-a523-63fa62d16dad" (type root:universal).
$ kubectl get deployments -A
NAMESPACE      NAME       READY   UP-TO-DATE   AVAILABLE   AGE
commonstuff    commond    0/0     0            0           8m26s
specialstuff   speciald   0/0     0            0           8m26s
$ kubectl get SyncerConfig the-one -o yaml
apiVersion: edge.kcp.io/v1alpha1
kind: SyncerConfig
metadata:
  annotations:
    kcp.io/cluster: hcn6m98keefp4o2a
  creationTimestamp: "2026-11-15T19:58:37Z"
  generation: …
  name: the-one
  resourceVersion: "1258"
  uid: 2f6336ad-46aa-48dd-b6d2-72f02c941650
spec:
  namespaceScope:
    namespaces:
    - specialstuff
    - commonstuff
    resources:
{RESOURCES}  upsync:
  - apiGroup: group2.test
    names:
    - William
    resources:
    - cogs
  - apiGroup: group3.test
    names:
    - '*'
    resources:
    - widgets
  - apiGroup: group1.test
    names:
    - george
    - cosmo
    namespaces:
    - orbital
    resources:
    - sprockets
    - flanges
status: {{}}
$ kubectl get ns
NAME           STATUS   AGE
commonstuff    Active   31s
default        Active   63s
specialstuff   Active   31s
$ kubectl get configmap httpd-htdocs -n specialstuff -o jsonpath='{{.data.index\\.html}}'
<!DOCTYPE html>
<html>
  <body>
    This is a special web site.
  </body>
</html>
$ kubectl ws root:espw
Current workspace is "root:espw".
"""


def find_mailboxes(session: Session) -> None:
    """What commands call the workspaces of the scenario.  We are in the provider's workspace."""
    florin, guilder = (mailbox_of(session, target) for target in ("sync-target-f", "sync-target-g"))
    hub = session.run("echo $HUB").strip()
    at = {"FLORIN": f"root:espw:{florin}", "GUILDER": f"root:espw:{guilder}", "INVENTORY": "root:imw-1"}
    at |= {"COMMON": "root:my-org:wmw-c", "SPECIAL": "root:my-org:wmw-s"}
    session.export(FLORIN=florin, GUILDER=guilder)
    session.export(FLORIN_UID=florin.partition("-mb-")[2], GUILDER_UID=guilder.partition("-mb-")[2])
    session.export(**{f"AT_{name}": f"--server {hub}/clusters/{path}" for name, path in at.items()})
