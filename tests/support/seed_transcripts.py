"""What the scenario of two edge clusters and two workloads types and prints, as far as several tests need it."""

from __future__ import annotations

from seed_session import Session

INVENTORY = """\
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create imw-1 --enter
Workspace "imw-1" (type root:organization) created. Waiting for it to be ready...
Workspace "imw-1" (type root:organization) is ready to use.
Current workspace is "root:imw-1" (type root:organization).
$ kubectl apply -f - <<EOF
apiVersion: workload.kcp.io/v1alpha1
kind: SyncTarget
metadata:
  name: sync-target-f
  labels:
    example: si
    extended: non
spec:
  cells:
    foo: bar
EOF
synctarget.workload.kcp.io/sync-target-f created
$ kubectl apply -f - <<EOF
apiVersion: scheduling.kcp.io/v1alpha1
kind: Location
metadata:
  name: location-f
  labels:
    env: prod
spec:
  resource: {group: workload.kcp.io, version: v1alpha1, resource: synctargets}
  instanceSelector:
    matchLabels: {"example":"si", "extended":"non"}
EOF
location.scheduling.kcp.io/location-f created
$ kubectl get locations,synctargets
NAME                                    RESOURCE      AVAILABLE   INSTANCES   LABELS   AGE
location.scheduling.kcp.io/default      synctargets   0           1                    2s
location.scheduling.kcp.io/location-f   synctargets   0           1                    1s

NAME                                       AGE
synctarget.workload.kcp.io/sync-target-f   2s
$ kubectl delete locations default
location.scheduling.kcp.io "default" deleted
$ kubectl apply -f - <<EOF
apiVersion: workload.kcp.io/v1alpha1
kind: SyncTarget
metadata:
  name: sync-target-g
  labels:
    example: si
    extended: si
spec:
  cells:
    bar: baz
EOF
synctarget.workload.kcp.io/sync-target-g created
$ kubectl apply -f - <<EOF
apiVersion: scheduling.kcp.io/v1alpha1
kind: Location
metadata:
  name: location-g
  labels:
    env: prod
    extended: si
spec:
  resource: {group: workload.kcp.io, version: v1alpha1, resource: synctargets}
  instanceSelector:
    matchLabels: {"example":"si", "extended":"si"}
EOF
location.scheduling.kcp.io/location-g created
$ kubectl get locations,synctargets -o wide
NAME                                    RESOURCE      AVAILABLE   INSTANCES   LABELS   AGE
location.scheduling.kcp.io/location-f   synctargets   0           1                    2s
location.scheduling.kcp.io/location-g   synctargets   0           1                    1s

NAME                                       LOCATION        READY   SYNCED API RESOURCES   KEY   AGE
synctarget.workload.kcp.io/sync-target-f   sync-target-f   False                                3s
synctarget.workload.kcp.io/sync-target-g   sync-target-g   False                                1s
"""
PROVIDER = """\
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create espw --enter
Workspace "espw" (type root:organization) created. Waiting for it to be ready...
Workspace "espw" (type root:organization) is ready to use.
Current workspace is "root:espw" (type root:organization).
$ kubectl create -f config/crds
customresourcedefinition.apiextensions.k8s.io/customizers.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/edgeplacements.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/edgesyncconfigs.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/singleplacementslices.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/statuscollectors.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/statussummaries.edge.kcp.io created
customresourcedefinition.apiextensions.k8s.io/syncerconfigs.edge.kcp.io created
$ kubectl create -f config/exports
apiexport.apis.kcp.io/edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-b43b2f81.customizers.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-2bd60692.edgeplacements.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-e7e5e8ef.edgesyncconfigs.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-c501875a.singleplacementslices.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-34da9fe5.statuscollectors.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-781c04fe.statussummaries.edge.kcp.io created
apiresourceschema.apis.kcp.io/v1alpha1-d3c9ef16.syncerconfigs.edge.kcp.io created
"""
COMMON = """\
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create my-org --enter
Workspace "my-org" (type root:organization) created. Waiting for it to be ready...
Workspace "my-org" (type root:organization) is ready to use.
Current workspace is "root:my-org" (type root:organization).
$ kubectl ws create wmw-c --enter
Workspace "wmw-c" (type root:universal) created. Waiting for it to be ready...
Workspace "wmw-c" (type root:universal) is ready to use.
Current workspace is "root:my-org:wmw-c" (type root:universal).
$ kubectl apply -f - <<EOF
apiVersion: apis.kcp.io/v1alpha1
kind: APIBinding
metadata:
  name: bind-kube
spec:
  reference:
    export:
      path: "root:compute"
      name: kubernetes
EOF
apibinding.apis.kcp.io/bind-kube created
$ kubectl apply -f - <<EOF
apiVersion: v1
kind: Namespace
metadata:
  name: commonstuff
  labels: {common: "si"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: commonstuff
  name: httpd-htdocs
data:
  index.html: |
    <!DOCTYPE html>
    <html>
      <body>
        This is a common web site.
      </body>
    </html>
---
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: commonstuff
  name: commond
spec:
  selector: {matchLabels: {app: common} }
  template:
    metadata:
      labels: {app: common}
    spec:
      containers:
      - name: httpd
        image: library/httpd:2.4
        ports:
        - name: http
          containerPort: 80
          hostPort: 8081
          protocol: TCP
        volumeMounts:
        - name: htdocs
          readOnly: true
          mountPath: /usr/local/apache2/htdocs
      volumes:
      - name: htdocs
        configMap:
          name: httpd-htdocs
          optional: false
EOF
namespace/commonstuff created
configmap/httpd-htdocs created
deployment.apps/commond created
$ kubectl apply -f - <<EOF
apiVersion: apis.kcp.io/v1alpha1
kind: APIBinding
metadata:
  name: bind-espw
spec:
  reference:
    export:
      path: root:espw
      name: edge.kcp.io
EOF
apibinding.apis.kcp.io/bind-espw created
$ kubectl apply -f - <<EOF
apiVersion: edge.kcp.io/v1alpha1
kind: EdgePlacement
metadata:
  name: edge-placement-c
spec:
  locationSelectors:
  - matchLabels: {"env":"prod"}
  namespaceSelector:
    matchLabels: {"common":"si"}
  nonNamespacedObjects:
  - apiGroup: apis.kcp.io
    resources: [ "apibindings" ]
    resourceNames: [ "bind-kube" ]
  upsync:
  - apiGroup: "group1.test"
    resources: ["sprockets", "flanges"]
    namespaces: ["orbital"]
    names: ["george", "cosmo"]
  - apiGroup: "group2.test"
    resources: ["cogs"]
    names: ["William"]
EOF
edgeplacement.edge.kcp.io/edge-placement-c created
"""
SPECIAL = """\
$ kubectl ws root:my-org
Current workspace is "root:my-org".
$ kubectl ws create wmw-s --enter
Workspace "wmw-s" (type root:universal) created. Waiting for it to be ready...
Workspace "wmw-s" (type root:universal) is ready to use.
Current workspace is "root:my-org:wmw-s" (type root:universal).
$ kubectl apply -f - <<EOF
apiVersion: apis.kcp.io/v1alpha1
kind: APIBinding
metadata:
  name: bind-kube
spec:
  reference:
    export:
      path: "root:compute"
      name: kubernetes
EOF
apibinding.apis.kcp.io/bind-kube created
$ kubectl apply -f - <<EOF
apiVersion: v1
kind: Namespace
metadata:
  name: specialstuff
  labels: {special: "si"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: specialstuff
  name: httpd-htdocs
data:
  index.html: |
    <!DOCTYPE html>
    <html>
      <body>
        This is a special web site.
      </body>
    </html>
---
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: specialstuff
  name: speciald
spec:
  selector: {matchLabels: {app: special} }
  template:
    metadata:
      labels: {app: special}
    spec:
      containers:
      - name: httpd
        image: library/httpd:2.4
        ports:
        - name: http
          containerPort: 80
          hostPort: 8082
          protocol: TCP
        volumeMounts:
        - name: htdocs
          readOnly: true
          mountPath: /usr/local/apache2/htdocs
      volumes:
      - name: htdocs
        configMap:
          name: httpd-htdocs
          optional: false
EOF
namespace/specialstuff created
configmap/httpd-htdocs created
deployment.apps/speciald created
$ kubectl apply -f - <<EOF
apiVersion: apis.kcp.io/v1alpha1
kind: APIBinding
metadata:
  name: bind-espw
spec:
  reference:
    export:
      path: root:espw
      name: edge.kcp.io
EOF
apibinding.apis.kcp.io/bind-espw created
$ kubectl apply -f - <<EOF
apiVersion: edge.kcp.io/v1alpha1
kind: EdgePlacement
metadata:
  name: edge-placement-s
spec:
  locationSelectors:
  - matchLabels: {"env":"prod","extended":"si"}
  namespaceSelector: 
    matchLabels: {"special":"si"}
  nonNamespacedObjects:
  - apiGroup: apis.kcp.io
    resources: [ "apibindings" ]
    resourceNames: [ "bind-kube" ]
  upsync:
  - apiGroup: "group1.test"
    resources: ["sprockets", "flanges"]
    namespaces: ["orbital"]
    names: ["george", "cosmo"]
  - apiGroup: "group3.test"
    resources: ["widgets"]
    names: ["*"]
EOF
edgeplacement.edge.kcp.io/edge-placement-s created
"""  # noqa: W291
IN_PROVIDER = """\
$ kubectl ws root:espw
Current workspace is "root:espw".
"""
MAILBOX_CONTROLLER = """\
$ farflung mailbox-controller -v=2
...
I0418 00:06:33.600117    6576 main.go:196] "Found APIExport view" exportName="workload.kcp.io" serverURL="https://192.168.58.123:6443/services/apiexport/root/workload.kcp.io"
I1115 19:58:05.217270    6026 controller.go:110] "Informers synced"
...
I0418 00:06:34.361128    6576 controller.go:299] "Created APIBinding" worker=1 mbwsName="2rp1gztc6m5b8b7r-mb-31e5fa4d-a84e-4397-a523-63fa62d16dad" mbwsCluster="1b0eso4ld8np1d3z" bindingName="bind-edge" resourceVersion="1303"
...
I0418 00:06:34.361216    6576 controller.go:299] "Created APIBinding" worker=2 mbwsName="2rp1gztc6m5b8b7r-mb-58f7e799-4653-422b-adba-b1e5e85a7fac" mbwsCluster="2gqno7cdbsthqsmz" bindingName="bind-edge" resourceVersion="1305"
^C
"""  # noqa: E501
MAILBOXES = """\
$ kubectl get Workspaces
NAME                                                       TYPE        REGION   PHASE   URL                                                     AGE
2rp1gztc6m5b8b7r-mb-31e5fa4d-a84e-4397-a523-63fa62d16dad   universal            Ready   https://192.168.58.123:6443/clusters/1b0eso4ld8np1d3z   4m56s
2rp1gztc6m5b8b7r-mb-58f7e799-4653-422b-adba-b1e5e85a7fac   universal            Ready   https://192.168.58.123:6443/clusters/2gqno7cdbsthqsmz   4m56s
"""  # noqa: E501
SCHEDULER = """\
$ farflung scheduler
I0418 00:23:58.516391    6754 scheduler.go:212] "Found APIExport view" exportName="edge.kcp.io" serverURL="https://192.168.58.123:6443/services/apiexport/2mk49qlwexsf0dbl/edge.kcp.io"
...
I0418 00:23:58.787650    6754 reconcile_on_location.go:192] "updated SinglePlacementSlice" controller="edge-scheduler" triggeringKind=Location key="2rp1gztc6m5b8b7r|location-g" locationWorkspace="2rp1gztc6m5b8b7r" location="location-g" workloadWorkspace="29qof7rv6tzefi7b" singlePlacementSlice="edge-placement-c"
...
I0418 00:23:58.790090    6754 reconcile_on_location.go:192] "updated SinglePlacementSlice" controller="edge-scheduler" triggeringKind=Location key="2rp1gztc6m5b8b7r|location-f" locationWorkspace="2rp1gztc6m5b8b7r" location="location-f" workloadWorkspace="29qof7rv6tzefi7b" singlePlacementSlice="edge-placement-c"
^C
"""  # noqa: E501


def mailbox_of(session: Session, target: str) -> str:
    """Its name.  We are in the provider's workspace."""
    cluster, uid = session.run(
        f"kubectl --server $HUB/clusters/root:imw-1 get synctarget {target} -o jsonpath='"
        "{.metadata.annotations.kcp\\.io/cluster} {.metadata.uid}'"
    ).split()
    return f"{cluster}-mb-{uid}"
