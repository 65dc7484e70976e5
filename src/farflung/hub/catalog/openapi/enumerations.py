"""The string fields with a fixed set of values.  Kubernetes omits them from the definitions that it publishes as
files, but serves them, and `kubectl explain` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SIGNALS: Final = (
    "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL "
    "SIGPROF SIGPWR SIGQUIT SIGRTMAX "
    + " ".join(f"SIGRTMAX-{number}" for number in (1, 10, 11, 12, 13, 14, 2, 3, 4, 5, 6, 7, 8, 9))
    + " SIGRTMIN "
    + " ".join(f"SIGRTMIN+{number}" for number in (1, 10, 11, 12, 13, 14, 15, 2, 3, 4, 5, 6, 7, 8, 9))
    + " SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM "
    "SIGWINCH SIGXCPU SIGXFSZ"
)

#: one field or several: `group.version.Kind.field`
TABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "FQDN IPv4 IPv6": ("discovery.v1.EndpointSlice.addressType",),
    "Localhost RuntimeDefault Unconfined": ("core.v1.AppArmorProfile.type", "core.v1.SeccompProfile.type"),
    "None ReadOnly ReadWrite": ("core.v1.AzureDiskVolumeSource.cachingMode",),
    "Dedicated Managed Shared": ("core.v1.AzureDiskVolumeSource.kind",),
    "ControllerResizeInProgress ControllerResizeInfeasible NodeResizeInProgress NodeResizeInfeasible "
    "NodeResizePending": ("core.v1.PersistentVolumeClaimStatus.allocatedResourceStatuses",),
    "Indexed NonIndexed": ("batch.v1.JobSpec.completionMode",),
    "Allow Forbid Replace": ("batch.v1.CronJobSpec.concurrencyPolicy",),
    "ClusterFirst ClusterFirstWithHostNet Default None": ("core.v1.PodSpec.dnsPolicy",),
    "OnDelete RollingUpdate": ("apps.v1.DaemonSetUpdateStrategy.type", "apps.v1.StatefulSetUpdateStrategy.type"),
    "Recreate RollingUpdate": ("apps.v1.DeploymentStrategy.type",),
    "Fail Ignore": (
        "admissionregistration.v1.MutatingWebhook.failurePolicy",
        "admissionregistration.v1.ValidatingAdmissionPolicySpec.failurePolicy",
        "admissionregistration.v1.ValidatingWebhook.failurePolicy",
    ),
    " BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket": (
        "core.v1.HostPathVolumeSource.type",
    ),
    " IPv4 IPv6": ("core.v1.ServiceSpec.ipFamilies",),
    "PreferDualStack RequireDualStack SingleStack": ("core.v1.ServiceSpec.ipFamilyPolicy",),
    "Equivalent Exact": (
        "admissionregistration.v1.MatchResources.matchPolicy",
        "admissionregistration.v1.MutatingWebhook.matchPolicy",
        "admissionregistration.v1.ValidatingWebhook.matchPolicy",
    ),
    "Bidirectional HostToContainer None": ("core.v1.VolumeMount.mountPropagation",),
    "Active Terminating": ("core.v1.NamespaceStatus.phase",),
    "Honor Ignore": (
        "core.v1.TopologySpreadConstraint.nodeAffinityPolicy",
        "core.v1.TopologySpreadConstraint.nodeTaintsPolicy",
    ),
    "Pending Running Terminated": ("core.v1.NodeStatus.phase",),
    "DoesNotExist Exists Gt In Lt NotIn": ("core.v1.NodeSelectorRequirement.operator",),
    "* CONNECT CREATE DELETE UPDATE": (
        "admissionregistration.v1.NamedRuleWithOperations.operations",
        "admissionregistration.v1.RuleWithOperations.operations",
    ),
    "Allow Deny": ("admissionregistration.v1.ParamRef.parameterNotFoundAction",),
    "Exact ImplementationSpecific Prefix": ("networking.v1.HTTPIngressPath.pathType",),
    "ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod": (
        "core.v1.PersistentVolumeClaimSpec.accessModes",
        "core.v1.PersistentVolumeClaimStatus.accessModes",
        "core.v1.PersistentVolumeSpec.accessModes",
    ),
    "InProgress Infeasible Pending": ("core.v1.ModifyVolumeStatus.status",),
    "Bound Lost Pending": ("core.v1.PersistentVolumeClaimStatus.phase",),
    "Block Filesystem": ("core.v1.PersistentVolumeClaimSpec.volumeMode", "core.v1.PersistentVolumeSpec.volumeMode"),
    "Available Bound Failed Pending Released": ("core.v1.PersistentVolumeStatus.phase",),
    "Delete Recycle Retain": (
        "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy",
        "storage.v1.StorageClass.reclaimPolicy",
    ),
    "Always OnRootMismatch": ("core.v1.PodSecurityContext.fsGroupChangePolicy",),
    "Count FailIndex FailJob Ignore": ("batch.v1.PodFailurePolicyRule.action",),
    "In NotIn": ("batch.v1.PodFailurePolicyOnExitCodesRequirement.operator",),
    "OrderedReady Parallel": ("apps.v1.StatefulSetSpec.podManagementPolicy",),
    "Failed Pending Running Succeeded Unknown": ("core.v1.PodStatus.phase",),
    "BestEffort Burstable Guaranteed": ("core.v1.PodStatus.qosClass",),
    "Failed TerminatingOrFailed": ("batch.v1.JobSpec.podReplacementPolicy",),
    "Egress Ingress": ("networking.v1.NetworkPolicySpec.policyTypes",),
    "Never PreemptLowerPriority": ("core.v1.PodSpec.preemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"),
    "Default Unmasked": ("core.v1.SecurityContext.procMount",),
    "SCTP TCP UDP": (
        "core.v1.ContainerPort.protocol",
        "core.v1.EndpointPort.protocol",
        "core.v1.PortStatus.protocol",
        "core.v1.ServicePort.protocol",
        "discovery.v1.EndpointPort.protocol",
        "networking.v1.IngressPortStatus.protocol",
        "networking.v1.NetworkPolicyPort.protocol",
    ),
    "Always IfNotPresent Never": (
        "core.v1.Container.imagePullPolicy",
        "core.v1.EphemeralContainer.imagePullPolicy",
        "core.v1.ImageVolumeSource.pullPolicy",
    ),
    "IfNeeded Never": ("admissionregistration.v1.MutatingWebhook.reinvocationPolicy",),
    "BestEffort CrossNamespacePodAffinity NotBestEffort NotTerminating PriorityClass Terminating "
    "VolumeAttributesClass": (
        "core.v1.ResourceQuotaSpec.scopes",
        "core.v1.ScopedResourceSelectorRequirement.scopeName",
    ),
    "Always Never OnFailure": ("core.v1.PodSpec.restartPolicy",),
    "DoesNotExist Exists In NotIn": ("core.v1.ScopedResourceSelectorRequirement.operator",),
    "* Cluster Namespaced": (
        "admissionregistration.v1.NamedRuleWithOperations.scope",
        "admissionregistration.v1.RuleWithOperations.scope",
    ),
    "ClientIP None": ("core.v1.ServiceSpec.sessionAffinity",),
    "Cluster Local": ("core.v1.ServiceSpec.externalTrafficPolicy", "core.v1.ServiceSpec.internalTrafficPolicy"),
    "ClusterIP ExternalName LoadBalancer NodePort": ("core.v1.ServiceSpec.type",),
    "None NoneOnDryRun Some Unknown": (
        "admissionregistration.v1.MutatingWebhook.sideEffects",
        "admissionregistration.v1.ValidatingWebhook.sideEffects",
    ),
    SIGNALS: ("core.v1.ContainerStatus.stopSignal", "core.v1.Lifecycle.stopSignal"),
    "Merge Strict": ("core.v1.PodSecurityContext.supplementalGroupsPolicy",),
    "NoExecute NoSchedule PreferNoSchedule": ("core.v1.Taint.effect", "core.v1.Toleration.effect"),
    "FallbackToLogsOnError File": (
        "core.v1.Container.terminationMessagePolicy",
        "core.v1.EphemeralContainer.terminationMessagePolicy",
    ),
    "Equal Exists": ("core.v1.Toleration.operator",),
    "HTTP HTTPS": ("core.v1.HTTPGetAction.scheme",),
    "AlwaysAllow IfHealthyBudget": ("policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy",),
    "DoNotSchedule ScheduleAnyway": ("core.v1.TopologySpreadConstraint.whenUnsatisfiable",),
    "Audit Deny Warn": ("admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec.validationActions",),
    "Immediate WaitForFirstConsumer": ("storage.v1.StorageClass.volumeBindingMode",),
}

#: (definition, field) → its values
VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    (f"io.k8s.api.{definition}", name): tuple(values.split(" "))
    for values, fields in TABLE.items()
    for definition, _, name in (field.rpartition(".") for field in fields)
}
