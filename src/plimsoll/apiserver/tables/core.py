"""Computed cells of nodes, events, quotas, services, volumes and claims."""

from __future__ import annotations

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.json_values import get_path, items
from plimsoll.apiserver.tables.row import (
    NONE,
    UNKNOWN,
    UNSET,
    Path,
    TableRow,
    Tree,
    format_age,
    shorten,
    text_of,
    texts_of,
)
from plimsoll.errors import QuantityError

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"

# -- nodes


def node_status(row: TableRow) -> str:
    ready = [c for c in row.trees(("status", "conditions")) if c.get("type") == "Ready"]
    words = "Unknown"
    if ready:  # the last of several takes precedence
        words = "Ready" if ready[-1].get("status") == "True" else "NotReady"
    return f"{words},SchedulingDisabled" if row.flag(("spec", "unschedulable")) else words


def node_roles(row: TableRow) -> str:
    roles = set()
    for key, value in row.map(("metadata", "labels")).items():
        if key.startswith(_ROLE_PREFIX):
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == _ROLE_LABEL:
            roles.add(text_of(value))
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(row: TableRow, type: str) -> str:
    for address in row.trees(("status", "addresses")):
        if address.get("type") == type:
            return text_of(address.get("address"))
    return NONE


def node_internal_address(row: TableRow) -> str:
    return _node_address(row, "InternalIP")


def node_external_address(row: TableRow) -> str:
    return _node_address(row, "ExternalIP")


def node_kernel(row: TableRow) -> str:
    version = row.text(("status", "nodeInfo", "kernelVersion"), UNKNOWN)
    architecture = row.text(("status", "nodeInfo", "architecture"))
    return f"{version} ({architecture})" if architecture else version


# -- events, in the form of either group


def _either(row: TableRow, old: Path, new: Path) -> str:
    return row.text(old) or row.text(new)


def event_first_seen(row: TableRow) -> str:
    first = _either(row, ("firstTimestamp",), ("deprecatedFirstTimestamp",))
    return format_age(first or row.get(("eventTime",)), row.now)


def event_last_seen(row: TableRow) -> str:
    series = row.get(("series",))
    if isinstance(series, dict):
        return format_age(series.get("lastObservedTime"), row.now)
    last = _either(row, ("lastTimestamp",), ("deprecatedLastTimestamp",))
    return format_age(last, row.now) if last else event_first_seen(row)


def event_count(row: TableRow) -> int:
    if isinstance(row.get(("series",)), dict):
        return row.number(("series", "count"))
    return row.number(("count",)) or row.number(("deprecatedCount",)) or 1


def event_object(row: TableRow) -> str:
    about = row.map(("involvedObject",)) or row.map(("regarding",))
    kind, name = text_of(about.get("kind")).lower(), text_of(about.get("name"))
    return f"{kind}/{name}" if name else kind


def event_part(row: TableRow) -> str:
    return _either(row, ("involvedObject", "fieldPath"), ("regarding", "fieldPath"))


def event_source(row: TableRow) -> str:
    source = row.map(("source",)) or row.map(("deprecatedSource",))
    reporter = _either(row, ("reportingComponent",), ("reportingController",))
    component = text_of(source.get("component")) or reporter
    instance = text_of(source.get("host")) or row.text(("reportingInstance",))
    return f"{component}, {instance}" if instance else component


def event_message(row: TableRow) -> str:
    return _either(row, ("message",), ("note",)).strip()


# -- quotas


def quantity_text(value: object) -> str:
    """Format a quantity canonically; 0 if absent."""
    try:
        return str(Quantity.from_json(value))
    except QuantityError:
        return text_of(value)


def _quota(row: TableRow, *, limits: bool) -> str:
    hard, used = row.map(("status", "hard")), row.map(("status", "used"))
    names = [name for name in sorted(hard) if name.startswith("limits.") == limits]
    return ", ".join(f"{n}: {quantity_text(used.get(n))}/{quantity_text(hard[n])}" for n in names)


def quota_requests(row: TableRow) -> str:
    return _quota(row, limits=False)


def quota_limits(row: TableRow) -> str:
    return _quota(row, limits=True)


# -- services and endpoints


def service_cluster_address(row: TableRow) -> str:
    addresses = texts_of(row.get(("spec", "clusterIPs")))
    return addresses[0] if addresses else row.text(("spec", "clusterIP"), NONE)


def load_balancer_addresses(row: TableRow) -> str:
    entries = row.trees(("status", "loadBalancer", "ingress"))
    found = {text_of(entry.get("ip")) or text_of(entry.get("hostname")) for entry in entries}
    return ",".join(sorted(found - {""}))


def service_external_address(row: TableRow) -> str:
    type = row.text(("spec", "type"), "ClusterIP")
    given = ",".join(texts_of(row.get(("spec", "externalIPs"))))
    if type in ("ClusterIP", "NodePort"):
        return given or NONE
    if type == "LoadBalancer":
        return ",".join(part for part in (load_balancer_addresses(row), given) if part) or "<pending>"
    return row.text(("spec", "externalName")) if type == "ExternalName" else UNKNOWN


def service_ports(row: TableRow) -> str:
    parts = []
    for port in row.trees(("spec", "ports")):
        number, outside = text_of(port.get("port"), "0"), port.get("nodePort")
        both = f"{number}:{text_of(outside)}" if isinstance(outside, int) and outside > 0 else number
        parts.append(f"{both}/{text_of(port.get('protocol'), 'TCP')}")
    return ",".join(parts) or NONE


def endpoints(row: TableRow) -> str:
    subsets = row.trees(("subsets",))
    found = []
    for subset in subsets:
        addresses = [text_of(address.get("ip")) for address in items(subset.get("addresses"))]
        ports = list(items(subset.get("ports")))
        if not ports:
            found += addresses
        for port in ports:
            number = text_of(port.get("port"), "0")
            found += [f"[{ip}]:{number}" if ":" in ip else f"{ip}:{number}" for ip in addresses]
    return shorten(found, 3) if subsets else NONE


def slice_ports(row: TableRow) -> str:
    ports = row.trees(("ports",))
    return (
        shorten((text_of(port.get("port")) or text_of(port.get("name"), "*") for port in ports), 3) or UNSET
    )


def slice_endpoints(row: TableRow) -> str:
    endpoints = row.trees(("endpoints",))
    return shorten((ip for entry in endpoints for ip in texts_of(entry.get("addresses"))), 3) or UNSET


# -- volumes

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def _modes(value: object) -> str:
    given = texts_of(value)
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def phase_or_terminating(row: TableRow) -> str:
    if row.get(("metadata", "deletionTimestamp")) is not None:
        return "Terminating"
    return row.text(("status", "phase"))


def storage_class(row: TableRow) -> str:
    annotated = row.map(("metadata", "annotations")).get(_CLASS_ANNOTATION)
    return annotated if isinstance(annotated, str) else row.text(("spec", "storageClassName"))


def volume_size(row: TableRow) -> str:
    return quantity_text(row.get(("spec", "capacity", "storage")))


def volume_modes(row: TableRow) -> str:
    return _modes(row.get(("spec", "accessModes")))


def volume_claim(row: TableRow) -> str:
    claim = row.get(("spec", "claimRef"))
    return (
        f"{text_of(get_path(claim, ('namespace',)))}/{text_of(get_path(claim, ('name',)))}" if claim else ""
    )


def claim_size(row: TableRow) -> str:
    bound = row.text(("spec", "volumeName"))
    return quantity_text(row.get(("status", "capacity", "storage"))) if bound else ""


def claim_modes(row: TableRow) -> str:
    return _modes(row.get(("status", "accessModes"))) if row.text(("spec", "volumeName")) else ""


# -- resource claims and pools


def resource_claim_state(row: TableRow) -> str:
    deleted = row.get(("metadata", "deletionTimestamp")) is not None
    states = ["deleted"] if deleted else []
    if row.get(("status", "allocation")) is None:
        states += [] if deleted else ["pending"]
    else:
        states.append("allocated")
        if row.get(("status", "reservedFor")):
            states.append("reserved")
    return ",".join(states)


def _true_condition(row: TableRow) -> Tree:
    for condition in row.trees(("status", "conditions")):
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return condition
    return {}


def pool_request_status(row: TableRow) -> str:
    found = text_of(_true_condition(row).get("type"), "Pending")
    listed, all = len(row.trees(("status", "pools"))), row.number(("status", "poolCount"))
    return f"Complete ({listed}/{all} pools)" if found == "Complete" and all > listed else found


def pool_request_completed(row: TableRow) -> str:
    condition = _true_condition(row)
    if condition.get("type") != "Complete":
        return NONE
    return format_age(condition.get("lastTransitionTime"), row.now)


def pool_request_sum(row: TableRow, name: str) -> str:
    """Return a total over all pools, or a dash if there is none."""
    if not isinstance(row.get(("status",)), dict) or _true_condition(row).get("type") == "Failed":
        return "-"
    pools = row.trees(("status", "pools"))
    if name == "validationError":
        return str(sum(pool.get(name) is not None for pool in pools))
    figures = (pool.get(name) for pool in pools)
    return str(sum(figure for figure in figures if isinstance(figure, int)))
