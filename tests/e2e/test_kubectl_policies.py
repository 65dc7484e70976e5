"""kubectl and ValidatingAdmissionPolicies: what is refused, and what is warned of."""

from __future__ import annotations

from kubectl_runner import Kubectl

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [apps]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [deployments, deployments/scale]
  validations:
  - expression: object.spec.replicas <= 2
    messageExpression: "'at most 2 replicas, not ' + string(object.spec.replicas)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [{action}]
  matchResources:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
"""


def test_kubectl_tells_what_a_policy_refuses_and_what_it_warns_of(kubectl: Kubectl) -> None:
    name = f"few-replicas-{kubectl.namespace}"
    described = {"name": name, "namespace": kubectl.namespace}
    kubectl("apply -f -", POLICY.format(action="Deny", **described))
    kubectl("create deployment web --image=nginx --replicas=2")
    refusal = kubectl.fails("create deployment big --image=nginx --replicas=5")
    whose = f"ValidatingAdmissionPolicy '{name}' with binding '{name}'"
    assert refusal.endswith(
        f'deployments.apps "big" is forbidden: {whose} denied request: at most 2 replicas, not 5'
    ), refusal
    assert "denied request: at most 2 replicas, not 4" in kubectl.fails("scale deployment web --replicas=4")
    assert kubectl.value("deployment web", ".spec.replicas") == "2"

    kubectl("apply -f -", POLICY.format(action="Warn", **described))
    warned = kubectl.run("scale deployment web --replicas=3")
    assert warned.returncode == 0
    assert f"Warning: Validation failed for {whose}: at most 2 replicas, not 3" in warned.stderr
    assert kubectl.value("deployment web", ".spec.replicas") == "3"

    kubectl(f"delete validatingadmissionpolicybinding,validatingadmissionpolicy {name}")
    kubectl("scale deployment web --replicas=4")


def test_kubectl_tells_what_is_wrong_with_a_policy(kubectl: Kubectl) -> None:
    described = {"name": "wrong", "namespace": kubectl.namespace, "action": "Deny"}
    policy, _, _ = POLICY.format(**described).partition("---")
    refusal = kubectl.fails("create -f -", policy.replace("object.spec.replicas <= 2", "objekt.spec.replicas <= 2"))
    assert "spec.validations[0].expression: Invalid value" in refusal
    assert "undeclared reference to 'objekt' (in container '')" in refusal
