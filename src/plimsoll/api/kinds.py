"""Kinds of the Kubernetes API: group, versions, plural, scope and short names, in discovery order.

The only list of kinds: the API server adds verbs and field labels (`apiserver/registry/resources.py`), the
client builds endpoints (`client/endpoints.py`), the tools take names and scopes from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


def resource_key(group: str, plural: str) -> str:
    """Return `pods`, or `resourceclaims.resource.k8s.io`."""
    return f"{plural}.{group}" if group else plural


def join_api_version(group: str, version: str) -> str:
    """Return `v1`, or `resource.k8s.io/v1`."""
    return f"{group}/{version}" if group else version


class Kind(NamedTuple):
    """Kind of objects; the first version is the preferred and stored one."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`pods`, or `resourceclaims.resource.k8s.io`."""
        return resource_key(self.group, self.plural)

    @property
    def api_version(self) -> str:
        """`v1`, or `resource.k8s.io/v1`."""
        return join_api_version(self.group, self.versions[0])


# By group: versions, plural, kind, scope, short names.
_TABLE = """
core:
v1                bindings                          Binding                          Namespaced
v1                configmaps                        ConfigMap                        Namespaced cm
v1                endpoints                         Endpoints                        Namespaced ep
v1                events                            Event                            Namespaced ev
v1                limitranges                       LimitRange                       Namespaced limits
v1                namespaces                        Namespace                        Cluster    ns
v1                nodes                             Node                             Cluster    no
v1                persistentvolumeclaims            PersistentVolumeClaim            Namespaced pvc
v1                persistentvolumes                 PersistentVolume                 Cluster    pv
v1                pods                              Pod                              Namespaced po
v1                podtemplates                      PodTemplate                      Namespaced
v1                replicationcontrollers            ReplicationController            Namespaced rc
v1                resourcequotas                    ResourceQuota                    Namespaced quota
v1                secrets                           Secret                           Namespaced
v1                serviceaccounts                   ServiceAccount                   Namespaced sa
v1                services                          Service                          Namespaced svc
apps:
v1                controllerrevisions               ControllerRevision               Namespaced
v1                daemonsets                        DaemonSet                        Namespaced ds
v1                deployments                       Deployment                       Namespaced deploy
v1                replicasets                       ReplicaSet                       Namespaced rs
v1                statefulsets                      StatefulSet                      Namespaced sts
events.k8s.io:
v1                events                            Event                            Namespaced ev
authentication.k8s.io:
v1                selfsubjectreviews                SelfSubjectReview                Cluster
v1                tokenreviews                      TokenReview                      Cluster
authorization.k8s.io:
v1                localsubjectaccessreviews         LocalSubjectAccessReview         Namespaced
v1                selfsubjectaccessreviews          SelfSubjectAccessReview          Cluster
v1                selfsubjectrulesreviews           SelfSubjectRulesReview           Cluster
v1                subjectaccessreviews              SubjectAccessReview              Cluster
autoscaling:
v2,v1             horizontalpodautoscalers          HorizontalPodAutoscaler          Namespaced hpa
batch:
v1                cronjobs                          CronJob                          Namespaced cj
v1                jobs                              Job                              Namespaced
certificates.k8s.io:
v1                certificatesigningrequests        CertificateSigningRequest        Cluster    csr
networking.k8s.io:
v1                ingressclasses                    IngressClass                     Cluster
v1                ingresses                         Ingress                          Namespaced ing
v1                ipaddresses                       IPAddress                        Cluster    ip
v1                networkpolicies                   NetworkPolicy                    Namespaced netpol
v1                servicecidrs                      ServiceCIDR                      Cluster
policy:
v1                poddisruptionbudgets              PodDisruptionBudget              Namespaced pdb
rbac.authorization.k8s.io:
v1                clusterrolebindings               ClusterRoleBinding               Cluster
v1                clusterroles                      ClusterRole                      Cluster
v1                rolebindings                      RoleBinding                      Namespaced
v1                roles                             Role                             Namespaced
storage.k8s.io:
v1                csidrivers                        CSIDriver                        Cluster
v1                csinodes                          CSINode                          Cluster
v1                csistoragecapacities              CSIStorageCapacity               Namespaced
v1                storageclasses                    StorageClass                     Cluster    sc
v1                volumeattachments                 VolumeAttachment                 Cluster
v1                volumeattributesclasses           VolumeAttributesClass            Cluster    vac
admissionregistration.k8s.io:
v1                mutatingadmissionpolicies         MutatingAdmissionPolicy          Cluster
v1                mutatingadmissionpolicybindings   MutatingAdmissionPolicyBinding   Cluster
v1                mutatingwebhookconfigurations     MutatingWebhookConfiguration     Cluster
v1                validatingadmissionpolicies       ValidatingAdmissionPolicy        Cluster
v1                validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding Cluster
v1                validatingwebhookconfigurations   ValidatingWebhookConfiguration   Cluster
apiextensions.k8s.io:
v1                customresourcedefinitions         CustomResourceDefinition         Cluster    crd,crds
apiregistration.k8s.io:
v1                apiservices                       APIService                       Cluster
scheduling.k8s.io:
v1                priorityclasses                   PriorityClass                    Cluster    pc
v1alpha2          podgroups                         PodGroup                         Namespaced
v1alpha2          workloads                         Workload                         Namespaced
coordination.k8s.io:
v1                leases                            Lease                            Namespaced
node.k8s.io:
v1                runtimeclasses                    RuntimeClass                     Cluster
discovery.k8s.io:
v1                endpointslices                    EndpointSlice                    Namespaced
resource.k8s.io:
v1,v1beta2,v1beta1 deviceclasses                     DeviceClass                      Cluster
v1beta2,v1alpha3  devicetaintrules                  DeviceTaintRule                  Cluster
v1,v1beta2,v1beta1 resourceclaims                    ResourceClaim                    Namespaced
v1,v1beta2,v1beta1 resourceclaimtemplates            ResourceClaimTemplate            Namespaced
v1alpha3          resourcepoolstatusrequests        ResourcePoolStatusRequest        Cluster
v1,v1beta2,v1beta1 resourceslices                    ResourceSlice                    Cluster
flowcontrol.apiserver.k8s.io:
v1                flowschemas                       FlowSchema                       Cluster
v1                prioritylevelconfigurations       PriorityLevelConfiguration       Cluster
"""


def _parse(table: str) -> Iterator[Kind]:
    group = ""
    for line in table.split("\n"):
        match line.split():
            case [header] if header.endswith(":"):
                group = header.removesuffix(":").replace("core", "")
            case [versions, plural, kind, scope, *short_names]:
                names = tuple(name for text in short_names for name in text.split(","))
                yield Kind(group, tuple(versions.split(",")), plural, kind, scope == "Namespaced", names)


KINDS: tuple[Kind, ...] = tuple(_parse(_TABLE))

_BY_KEY = {kind.key: kind for kind in KINDS}


def find_kind(key: str) -> Kind:
    """Return a kind by its key, such as `pods` or `resourceclaims.resource.k8s.io`."""
    return _BY_KEY[key]


def is_namespaced(kind: str) -> bool:
    """Return whether a kind of this name is namespaced; False for unknown kinds."""
    return kind in _NAMESPACED


_NAMESPACED = frozenset(kind.kind for kind in KINDS if kind.namespaced)
