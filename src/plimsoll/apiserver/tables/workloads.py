"""Computed cells of workloads, autoscalers, roles and cluster-scoped configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.apiserver.json_values import get_path
from plimsoll.apiserver.tables.core import quantity_text
from plimsoll.apiserver.tables.row import (
    NONE,
    UNKNOWN,
    UNSET,
    Path,
    TableRow,
    Tree,
    format_duration,
    format_selector,
    parse_timestamp,
    shorten,
    text_of,
    texts_of,
)

_DEFAULT_MARKS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_INGRESS_MARKS = ("ingressclass.kubernetes.io/is-default-class",)


def container_values(containers: Path, name: str) -> Callable[[TableRow], str]:
    """Return the names or images of the containers of a pod template."""
    return lambda row: ",".join(text_of(container.get(name)) for container in row.trees(containers))


def ratio(ready: Path, wanted: Path) -> Callable[[TableRow], str]:
    """Format `ready/desired`; desired is 1 by default."""
    return lambda row: f"{row.number(ready)}/{desired_replicas(row, wanted)}"


def desired_replicas(row: TableRow, path: Path) -> int:
    return 1 if row.get(path) is None else row.number(path)


def job_status(row: TableRow) -> str:
    held = {text_of(c.get("type")) for c in row.trees(("status", "conditions")) if c.get("status") == "True"}
    for type in ("Complete", "Failed"):
        if type in held:
            return type
    if row.get(("metadata", "deletionTimestamp")) is not None:
        return "Terminating"
    for type in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if type in held:
            return type
    return "Running"


def job_completions(row: TableRow) -> str:
    succeeded, wanted = row.number(("status", "succeeded")), row.get(("spec", "completions"))
    if wanted is not None:
        return f"{succeeded}/{text_of(wanted)}"
    parallel = row.number(("spec", "parallelism"))
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def job_duration(row: TableRow) -> str:
    start, end = (parse_timestamp(row.text(("status", name))) for name in ("startTime", "completionTime"))
    return "" if start is None else format_duration((end or row.now) - start)


def cron_suspended(row: TableRow) -> str:
    value = row.get(("spec", "suspend"))
    return UNSET if value is None else str(value is True)


def revision_owner(row: TableRow) -> str:
    for owner in row.trees(("metadata", "ownerReferences")):
        if owner.get("controller") is True:
            group = text_of(owner.get("apiVersion")).rpartition("/")[0]
            kind = text_of(owner.get("kind")).lower() + (f".{group}" if group else "")
            return f"{kind}/{text_of(owner.get('name'))}"
    return NONE


# -- autoscalers


def autoscaler_targets(row: TableRow) -> str:
    metrics, states = row.trees(("spec", "metrics")), row.trees(("status", "currentMetrics"))
    if not metrics:
        return NONE
    targets = [_metric(metric, states[i] if i < len(states) else {}) for i, metric in enumerate(metrics)]
    return shorten(targets, 2, ", ")


def _metric(metric: Tree, state: Tree) -> str:
    type = text_of(metric.get("type"))
    source = type[:1].lower() + type[1:]
    target, current = get_path(metric, (source, "target")), get_path(state, (source, "current"))
    if source in ("resource", "containerResource"):
        name = text_of(get_path(metric, (source, "name")))
        if get_path(target, ("averageValue",)) is not None:
            return f"{name}: {_amount(current, 'averageValue')}/{_amount(target, 'averageValue')}"
        return f"{name}: {_percent(current, UNKNOWN)}/{_percent(target, '<auto>')}"
    if source == "pods":
        return f"{_amount(current, 'averageValue')}/{_amount(target, 'averageValue')}"
    if source in ("external", "object"):
        if get_path(target, ("averageValue",)) is not None:
            return f"{_amount(current, 'averageValue')}/{_amount(target, 'averageValue')} (avg)"
        return f"{_amount(current, 'value')}/{_amount(target, 'value')}"
    return "<unknown type>"


def _amount(holder: Any, name: str) -> str:
    value = get_path(holder, (name,))
    return UNKNOWN if value is None else quantity_text(value)


def _percent(holder: Any, absent: str) -> str:
    value = get_path(holder, ("averageUtilization",))
    return f"{value}%" if isinstance(value, int) else absent


# -- networking


def ingress_hosts(row: TableRow) -> str:
    rules = row.trees(("spec", "rules"))
    hosts = [host for host in (text_of(rule.get("host")) for rule in rules) if host]
    if not hosts:
        return "*"
    return f"{','.join(hosts[:3])} + {len(rules) - 3} more..." if len(hosts) > 3 else ",".join(hosts)


def ingress_ports(row: TableRow) -> str:
    return "80, 443" if row.get(("spec", "tls")) else "80"


def named_default(row: TableRow, marks: tuple[str, ...]) -> str:
    annotations = row.map(("metadata", "annotations"))
    name = row.text(("metadata", "name"))
    return f"{name} (default)" if any(annotations.get(mark) == "true" for mark in marks) else name


def ingress_class_name(row: TableRow) -> str:
    return named_default(row, _DEFAULT_INGRESS_MARKS)


def storage_class_name(row: TableRow) -> str:
    return named_default(row, _DEFAULT_MARKS)


def ingress_class_parameters(row: TableRow) -> str:
    given = row.get(("spec", "parameters"))
    if not isinstance(given, dict):
        return NONE
    group = text_of(given.get("apiGroup"))
    return f"{text_of(given.get('kind'))}{'.' + group if group else ''}/{text_of(given.get('name'))}"


def address_parent(row: TableRow) -> str:
    parent = row.get(("spec", "parentRef"))
    if not isinstance(parent, dict):
        return NONE
    names = [text_of(parent.get(name)) for name in ("resource", "group", "namespace", "name")]
    what = ".".join(name for name in names[:2] if name).lower()
    return "/".join(name for name in (what, *names[2:]) if name)


# -- roles, admission, flow control


def binding_role(row: TableRow) -> str:
    return f"{row.text(('roleRef', 'kind'))}/{row.text(('roleRef', 'name'))}"


def subjects(kind: str) -> Callable[[TableRow], str]:
    """Return a cell with the users, groups or service accounts of a binding."""

    def format_subjects(row: TableRow) -> str:
        found = [subject for subject in row.trees(("subjects",)) if subject.get("kind") == kind]
        names = (text_of(subject.get("name")) for subject in found)
        if kind == "ServiceAccount":
            names = (f"{text_of(s.get('namespace'))}/{text_of(s.get('name'))}" for s in found)
        return ", ".join(names)

    return format_subjects


def parameter_kind(row: TableRow) -> str:
    given = row.get(("spec", "paramKind"))
    if not isinstance(given, dict):
        return UNSET
    return f"{text_of(given.get('apiVersion'))}/{text_of(given.get('kind'))}"


def parameter_reference(row: TableRow) -> str:
    given = row.get(("spec", "paramRef"))
    name = text_of(get_path(given, ("name",)))
    if name:
        return f"{text_of(get_path(given, ('namespace',)), '*')}/{name}"
    selector = get_path(given, ("selector",))
    return format_selector(selector) if selector else UNSET


def csi_tokens(row: TableRow) -> str:
    if row.get(("spec", "tokenRequests")) is None:
        return UNSET
    return ",".join(text_of(request.get("audience")) for request in row.trees(("spec", "tokenRequests")))


def csi_modes(row: TableRow) -> str:
    return ",".join(texts_of(row.get(("spec", "volumeLifecycleModes")))) or NONE


def service_of_api(row: TableRow) -> str:
    service = row.get(("spec", "service"))
    if not isinstance(service, dict):
        return "Local"
    return f"{text_of(service.get('namespace'))}/{text_of(service.get('name'))}"


def api_available(row: TableRow) -> str:
    for condition in row.trees(("status", "conditions")):
        if condition.get("type") == "Available":
            status, reason = text_of(condition.get("status")), text_of(condition.get("reason"))
            return f"{status} ({reason})" if reason and status != "True" else status
    return "Unknown"


def group_policy(row: TableRow) -> str:
    return "Gang" if row.get(("spec", "schedulingPolicy", "gang")) is not None else "Basic"


def group_status(row: TableRow) -> str:
    """Return whether a PodGroup is scheduled, or the reason of its disruption."""
    conditions = {text_of(each.get("type")): each for each in row.trees(("status", "conditions"))}
    if "DisruptionTarget" in conditions:
        return text_of(conditions["DisruptionTarget"].get("reason"))
    scheduled = conditions.get("PodGroupScheduled")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


def missing_level(row: TableRow) -> str:
    for condition in row.trees(("status", "conditions")):
        if condition.get("type") == "Dangling":
            return text_of(condition.get("status"))
    return "?"
