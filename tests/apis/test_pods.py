"""Pods: what is filled in, what is refused and in which words."""

from typing import Any

import pytest

from farflung.apis.core.pods import POD_RULES, POD_TEMPLATE_RULES, grace_seconds
from farflung.hub.admission.pod_admission import TOKEN_PATH, account_name, admit_pod, no_account
from farflung.machinery.errors import ApiError, Obj


def pod(container: Obj | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "nginx", **(container or {})}], **spec},
    }


def defaulted(obj: Obj) -> Obj:
    POD_RULES.default(obj)
    return obj


def said(obj: Obj) -> list[str]:
    POD_RULES.default(obj)
    return [str(error) for error in [*POD_RULES.validate(obj), *POD_RULES.validate_create(obj)]]


def updated(old: Obj, new: Obj) -> list[str]:
    for obj in (old, new):
        POD_RULES.default(obj)
    return [str(error) for error in POD_RULES.validate_update(new, old)]


# --- defaults and admission -----------------------------------------------------------------------


def test_a_minimal_pod_gets_everything_the_server_adds() -> None:
    obj = defaulted(pod(automountServiceAccountToken=False))
    admit_pod(obj, account={}, priority_class=None, suffix="abcde")
    POD_RULES.prepare_create(obj)
    assert obj["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "automountServiceAccountToken": False,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert obj["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_pod_mounts_its_token_under_the_given_suffix() -> None:
    obj = defaulted(pod(initContainers=[{"name": "i", "image": "i"}]))
    admit_pod(obj, account={}, priority_class=None, suffix="x9z2k")
    (volume,) = obj["spec"]["volumes"]
    assert volume["name"] == "kube-api-access-x9z2k"
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    mount = {"name": "kube-api-access-x9z2k", "readOnly": True, "mountPath": TOKEN_PATH}
    assert obj["spec"]["containers"][0]["volumeMounts"] == [mount]
    assert obj["spec"]["initContainers"][0]["volumeMounts"] == [mount]
    assert POD_RULES.validate(obj) == []


def test_an_account_or_a_pod_can_do_without_the_token() -> None:
    for account, spec in (
        ({"automountServiceAccountToken": False}, {}),
        ({"automountServiceAccountToken": True}, {"automountServiceAccountToken": False}),
    ):
        obj = defaulted(pod(**spec))
        admit_pod(obj, account=account, priority_class=None, suffix="abcde")
        assert "volumes" not in obj["spec"]


def test_a_pod_takes_the_pull_secrets_of_its_account() -> None:
    obj = defaulted(pod())
    admit_pod(obj, account={"imagePullSecrets": [{"name": "s"}]}, priority_class=None, suffix="abcde")
    assert obj["spec"]["imagePullSecrets"] == [{"name": "s"}]


def test_a_missing_account_is_forbidden() -> None:
    obj = defaulted(pod(serviceAccountName="nobody"))
    assert account_name(obj) == "nobody"
    why = 'pods "p" is forbidden: error looking up service account n/nobody: serviceaccount "nobody" not found'
    assert no_account(obj, "n").message == why


def test_tolerations_of_its_own_replace_the_usual_ones() -> None:
    obj = defaulted(pod(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]))
    admit_pod(obj, account={}, priority_class=None, suffix="abcde")
    keys = [toleration["key"] for toleration in obj["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = defaulted(pod(tolerations=[{"operator": "Exists"}]))
    admit_pod(everything, account={}, priority_class=None, suffix="abcde")
    assert everything["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_a_priority_class_decides_the_priority() -> None:
    obj = defaulted(pod(priorityClassName="high"))
    high = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    admit_pod(obj, account={}, priority_class=high, suffix="abcde")
    assert (obj["spec"]["priority"], obj["spec"]["preemptionPolicy"]) == (1000, "Never")
    with pytest.raises(ApiError, match="must not be provided in pod spec"):
        admit_pod(defaulted(pod(priority=5)), account={}, priority_class=high, suffix="abcde")


def test_everything_below_a_container_gets_its_defaults() -> None:
    obj = defaulted(
        pod(
            {
                "image": "reg:5000/x:v1",
                "ports": [{"containerPort": 80}],
                "env": [
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                ],
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"tcpSocket": {"port": "x"}},
                "startupProbe": {"grpc": {"port": 1}},
                "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            }
        )
    )
    container = obj["spec"]["containers"][0]
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["env"][1]["valueFrom"]["resourceFieldRef"]["divisor"] == "0"
    assert container["livenessProbe"] == {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, **numbers}
    assert container["readinessProbe"] == {"tcpSocket": {"port": "x"}, **numbers}
    assert container["startupProbe"]["grpc"] == {"port": 1, "service": ""}
    assert container["lifecycle"]["preStop"]["httpGet"] == {"port": 1, "path": "/", "scheme": "HTTP"}
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    POD_RULES.prepare_create(obj)
    assert obj["status"]["qosClass"] == "Burstable"


def test_nothing_is_counted_finer_than_in_thousandths() -> None:
    obj = defaulted(pod({"resources": {"limits": {"cpu": "100u"}, "requests": {"cpu": "1n"}}}))
    assert obj["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}}


def test_volumes_get_their_defaults() -> None:
    obj = defaulted(
        pod(
            volumes=[
                {"name": "e"},
                {"name": "s", "secret": {"secretName": "x"}},
                {"name": "m", "configMap": {"name": "x"}},
                {"name": "h", "hostPath": {"path": "/x"}},
                {"name": "d", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                {"name": "i", "image": {"reference": "x"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ]
        )
    )
    assert obj["spec"]["volumes"] == [
        {"name": "e", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
        {"name": "m", "configMap": {"name": "x", "defaultMode": 420}},
        {"name": "h", "hostPath": {"path": "/x", "type": ""}},
        {
            "name": "d",
            "downwardAPI": {
                "items": [{"path": "l", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}}],
                "defaultMode": 420,
            },
        },
        {"name": "i", "image": {"reference": "x", "pullPolicy": "Always"}},
        {
            "name": "p",
            "projected": {
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                "defaultMode": 420,
            },
        },
    ]


def test_a_pod_on_the_network_of_its_host_uses_the_ports_of_its_host() -> None:
    obj = defaulted(pod({"ports": [{"containerPort": 80}]}, hostNetwork=True))
    assert obj["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("resources", "class_"),
    [
        ({}, "BestEffort"),
        ({"limits": {"cpu": "0"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1m"}}, "Burstable"),
    ],
)
def test_the_class_of_service_follows_from_requests_and_limits(resources: Obj, class_: str) -> None:
    obj = defaulted(pod({"resources": resources}))
    POD_RULES.prepare_create(obj)
    assert obj["status"]["qosClass"] == class_


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("reg:5000/x", "Always"),
        ("registry.example.com:5000/x/y", "Always"),
        ("Registry.Example.com/x:1", "IfNotPresent"),
        ("reg:5000/x:v1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
        ("nginx:latest@sha256:" + "a" * 64, "Always"),
        ("Upper/Case", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("a" * 5000, "IfNotPresent"),
        ("f" * 64, "IfNotPresent"),
    ],
)
def test_the_tag_of_an_image_decides_when_it_is_pulled(image: str, policy: str) -> None:
    assert defaulted(pod({"image": image}))["spec"]["containers"][0]["imagePullPolicy"] == policy


# --- refusals -------------------------------------------------------------------------------------


def test_a_pod_needs_containers() -> None:
    assert said({"metadata": {"name": "q"}}) == ["spec.containers: Required value"]
    assert said({"metadata": {"name": "q"}, "spec": {}}) == ["spec.containers: Required value"]


def test_everything_wrong_with_a_pod_is_said_in_order() -> None:
    second = {
        "name": "c",
        "image": "x",
        "imagePullPolicy": "Z",
        "ports": [{"containerPort": 70000, "protocol": "X"}],
        "env": [{"name": "a=b"}],
        "resources": {"limits": {"cpu": "-1"}},
        "volumeMounts": [{"name": "zz", "mountPath": ""}],
    }
    obj = {
        "metadata": {"name": "q"},
        "spec": {"restartPolicy": "Foo", "dnsPolicy": "Bar", "containers": [{"name": "c"}, second]},
    }
    assert said(obj) == [
        "spec.containers[0].image: Required value",
        "spec.containers[1].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        'spec.containers[1].ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
        'spec.containers[1].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of '
        "printable ASCII characters other than '='",
        'spec.containers[1].volumeMounts[0].name: Not found: "zz"',
        "spec.containers[1].volumeMounts[0].mountPath: Required value",
        'spec.containers[1].imagePullPolicy: Unsupported value: "Z": supported values: "Always", '
        '"IfNotPresent", "Never"',
        'spec.containers[1].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        'spec.containers[1].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        'spec.containers[1].name: Duplicate value: "c"',
        'spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"',
        'spec.dnsPolicy: Unsupported value: "Bar": supported values: "ClusterFirstWithHostNet", "ClusterFirst", '
        '"Default", "None"',
    ]


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (
            pod(volumes=[{"name": "v", "emptyDir": {}, "configMap": {"name": "x"}}]),
            "spec.volumes[0].configMap: Forbidden: may not specify more than 1 volume type",
        ),
        (
            pod({"volumeMounts": [{"name": "nope", "mountPath": "/x"}]}),
            'spec.containers[0].volumeMounts[0].name: Not found: "nope"',
        ),
        (
            pod({"resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "200m"}}}),
            'spec.containers[0].resources.requests: Invalid value: "200m": must be less than or equal to '
            "cpu limit of 100m",
        ),
        (
            pod({"livenessProbe": {"periodSeconds": 1}}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            pod({"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}}),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            pod({"envFrom": [{}]}),
            'spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`',
        ),
        (
            pod({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}),
            'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting '
            "fieldPath: field label not supported: spec.x",
        ),
        (
            pod({"image": " x"}),
            'spec.containers[0].image: Invalid value: " x": must not have leading or trailing whitespace',
        ),
        (
            pod({"restartPolicy": "Always"}),
            "spec.containers[0].restartPolicy: Forbidden: may not be set for non-init containers",
        ),
        (
            pod(initContainers=[{"name": "i", "image": "i", "readinessProbe": {"tcpSocket": {"port": 1}}}]),
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without "
            "restartPolicy=Always",
        ),
        (pod(initContainers=[{"name": "c", "image": "i"}]), 'spec.initContainers[0].name: Duplicate value: "c"'),
        (
            pod(tolerations=[{"key": "a", "operator": "Maybe"}]),
            'spec.tolerations[0].operator: Unsupported value: "Maybe": supported values: "Equal", "Exists"',
        ),
        (
            pod(activeDeadlineSeconds=0),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (pod(dnsPolicy="None"), "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
        (
            pod(hostAliases=[{"ip": "nope"}]),
            'spec.hostAliases[0].ip: Invalid value: "nope": must be a valid IP address, (e.g. 10.9.8.7 or '
            "2001:db8::ffff)",
        ),
        (
            pod(topologySpreadConstraints=[{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than 0",
        ),
        (
            pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: "
            "Required value: must have at least one node selector term",
        ),
        (
            pod(securityContext={"runAsUser": -1}),
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            pod({"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}),
            'spec.containers[0].securityContext: Invalid value: {"privileged":true,"allowPrivilegeEscalation":false}: '
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ),
        (
            pod(ephemeralContainers=[{"name": "e", "image": "e"}]),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            pod(nodeName="n", schedulingGates=[{"name": "g"}]),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            pod({"resources": {"requests": {"nope": "1"}}}),
            'spec.containers[0].resources.requests[nope]: Invalid value: "nope": must be a standard resource type or '
            "fully qualified",
        ),
    ],
)
def test_what_is_wrong_is_said_as_kubernetes_says_it(obj: Obj, why: str) -> None:
    assert said(obj)[0] == why


def test_a_broken_volume_cannot_be_mounted() -> None:
    obj = pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=[{"name": "v", "secret": {}}])
    assert said(obj) == [
        "spec.volumes[0].secret.secretName: Required value",
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ]


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"hostPath": {"path": "/a/../b"}}, "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"),
        ({"nfs": {"server": "s", "path": "x"}}, 'nfs.path: Invalid value: "x": must be an absolute path'),
        ({"configMap": {}}, "configMap.name: Required value"),
        ({"persistentVolumeClaim": {}}, "persistentVolumeClaim.claimName: Required value"),
        (
            {"secret": {"secretName": "s", "defaultMode": 1000}},
            "secret.defaultMode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        ({"secret": {"secretName": "s", "items": [{"key": "k"}]}}, "secret.items[0].path: Required value"),
        (
            {"emptyDir": {"sizeLimit": "-1"}},
            "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}},
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration "
            "less than 10 minutes",
        ),
    ],
)
def test_each_type_of_volume_has_its_rules(volume: Obj, why: str) -> None:
    assert said(pod(volumes=[{"name": "v", **volume}], serviceAccountName="s")) == [f"spec.volumes[0].{why}"]


# --- updates --------------------------------------------------------------------------------------


def test_the_image_of_a_pod_may_change_and_nothing_else() -> None:
    assert updated(pod(), pod({"image": "nginx:2", "imagePullPolicy": "Always"})) == []
    (why,) = updated(pod(), pod(restartPolicy="Never"))
    assert why.startswith("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,")
    assert '- \trestartPolicy: "Always",\n+ \trestartPolicy: "Never",\n' in why


def test_containers_may_not_come_or_go() -> None:
    new = pod()
    new["spec"]["containers"].append({"name": "d", "image": "d"})
    assert updated(pod(), new) == ["spec.containers: Forbidden: pod updates may not add or remove containers"]


def test_tolerations_are_only_added() -> None:
    here = [{"key": "a", "operator": "Exists"}]
    assert updated(pod(tolerations=here), pod(tolerations=[*here, {"key": "b", "operator": "Exists"}])) == []
    assert updated(pod(tolerations=here), pod()) == [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def test_gates_are_only_removed() -> None:
    assert updated(pod(schedulingGates=[{"name": "g"}]), pod()) == []
    assert updated(pod(), pod(schedulingGates=[{"name": "g"}])) == [
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"
    ]


def test_a_deadline_only_comes_nearer() -> None:
    assert updated(pod(activeDeadlineSeconds=9), pod(activeDeadlineSeconds=5)) == []
    assert updated(pod(activeDeadlineSeconds=5), pod(activeDeadlineSeconds=9)) == [
        "spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"
    ]


def test_the_status_keeps_the_spec_and_the_class_of_service() -> None:
    old = defaulted(pod())
    POD_RULES.prepare_create(old)
    new = defaulted(pod(restartPolicy="Never"))
    new["status"] = {"phase": "Running"}
    POD_RULES.prepare_status(new, old)
    assert (new["spec"], new["status"]) == (old["spec"], {"phase": "Running", "qosClass": "BestEffort"})
    assert POD_RULES.validate_status(new, old) == []


def test_grace_is_for_pods_that_run_somewhere() -> None:
    assert grace_seconds(defaulted(pod())) == 0
    assert grace_seconds(defaulted(pod(nodeName="n"))) == 30
    assert grace_seconds(defaulted(pod(nodeName="n", terminationGracePeriodSeconds=-5))) == 1
    done = {**defaulted(pod(nodeName="n")), "status": {"phase": "Succeeded"}}
    assert grace_seconds(done) == 0


def test_repeated_variables_and_ports_are_warned_of() -> None:
    obj = pod(
        {
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "A", "value": "$(A)x"}],
            "ports": [{"containerPort": 80}, {"containerPort": 80}],
        }
    )
    assert POD_RULES.warnings(obj, None) == [
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
    ]
    assert POD_RULES.warnings(obj, obj) == []


def test_a_pod_template_is_a_template() -> None:
    obj: Obj = {"metadata": {"name": "t"}, "template": {"metadata": {"labels": {"a b": "c"}}}}
    POD_TEMPLATE_RULES.default(obj)
    first, second = (str(error) for error in POD_TEMPLATE_RULES.validate(obj))
    assert first.startswith('template.labels: Invalid value: "a b": name part must consist of')
    assert second == "template.spec.containers: Required value"


def test_hostile_sizes_cost_no_more_than_their_length() -> None:
    many = [{"key": f"k{at}", "operator": "Exists"} for at in range(20_000)]
    assert updated(pod(tolerations=many), pod(tolerations=[*many, {"key": "z", "operator": "Exists"}])) == []
    capabilities = {"add": ["CAP_SYS_ADMIN"] * 20_000}
    context = {"allowPrivilegeEscalation": False, "capabilities": capabilities}
    assert len(said(pod({"securityContext": context}))) == 1
    assert len(said(pod({"image": "a" * 1_000_000}))) == 0
