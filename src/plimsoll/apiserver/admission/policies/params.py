"""Parameters of a policy: the objects that the paramRef of a binding selects."""

from __future__ import annotations

from plimsoll.api import codec
from plimsoll.apiserver.admission.policies.attributes import AdmissionAttributes, Tree, object_labels
from plimsoll.apiserver.admission.policies.compiled_policy import CompiledBinding, CompiledPolicy
from plimsoll.apiserver.selectors import read_selector
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.errors import PolicyParamError


def collect_params(
    store: Store, policy: CompiledPolicy, binding: CompiledBinding, attributes: AdmissionAttributes
) -> list[Tree | None]:
    """Return the parameters to evaluate a policy with, each in turn; [None] if it has none.

    PolicyParamError if they cannot be read.
    """
    resource, ref = policy.param_resource, binding.param_ref
    if resource is None or ref is None:
        return [None]
    namespace = ""
    if resource.namespaced:
        namespace = ref.get("namespace") or attributes.namespace
        if not namespace:
            raise PolicyParamError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif ref.get("namespace"):
        raise PolicyParamError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    name, selector = ref.get("name"), ref.get("selector")
    found: list[Tree | None] = []
    if name:
        stored = store.get(ObjectKey(resource.storage_key, namespace, name))
        found = [] if stored is None else [codec.decode_tree(stored.raw)]
    elif selector is not None:
        compiled = read_selector(selector)
        items = store.list(resource.storage_key, namespace if resource.namespaced else None).items
        trees = [codec.decode_tree(stored.raw) for stored in items]
        found = [tree for tree in trees if compiled.matches(object_labels(tree) or {})]
    else:
        raise PolicyParamError("one of name or selector must be provided")
    if not found and ref.get("parameterNotFoundAction") == "Deny":
        raise PolicyParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
    assert policy.param_kind is not None
    version = policy.param_kind.version
    return [attributes.convert(tree, resource, version) for tree in found if tree is not None]
