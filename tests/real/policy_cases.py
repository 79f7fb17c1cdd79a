"""Admission policies and requests for a comparison with a real kube-apiserver, hand-written and random."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]

POLICIES = "validatingadmissionpolicies"
BINDINGS = "validatingadmissionpolicybindings"
MUTATING = "mutatingadmissionpolicies"
MUTATING_BINDINGS = "mutatingadmissionpolicybindings"
_API = "admissionregistration.k8s.io/v1"


@dataclass
class PolicyCase:
    """A policy, its binding, and the ConfigMap that is sent to it (with a label that only it selects)."""

    spec: Tree
    binding: Tree = field(default_factory=dict)
    data: Tree = field(default_factory=lambda: {"a": "1"})
    metadata: Tree = field(default_factory=dict)
    mutating: bool = False

    def policy(self, name: str) -> Tree:
        rules = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        match = {"resourceRules": [rules], "objectSelector": {"matchLabels": {"case": name}}}
        kind = "MutatingAdmissionPolicy" if self.mutating else "ValidatingAdmissionPolicy"
        spec = {"matchConstraints": match, **self.spec}
        if self.mutating:
            rules["operations"] = ["CREATE", "UPDATE"]
            spec.setdefault("reinvocationPolicy", "Never")
        return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}

    def bound(self, name: str) -> Tree:
        kind = "MutatingAdmissionPolicyBinding" if self.mutating else "ValidatingAdmissionPolicyBinding"
        actions = {} if self.mutating else {"validationActions": ["Deny"]}
        spec = {"policyName": name, **actions, **self.binding}
        return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}

    def object(self, name: str) -> Tree:
        labels = {"case": name, **self.metadata.get("labels", {})}
        metadata = {"name": name, **self.metadata, "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self.data}


def _validations(*expressions: str, **spec: Any) -> PolicyCase:
    return PolicyCase({"validations": [{"expression": text} for text in expressions], **spec})


def _mutation(expression: str, patch: bool = False, **spec: Any) -> PolicyCase:
    kind, name = ("JSONPatch", "jsonPatch") if patch else ("ApplyConfiguration", "applyConfiguration")
    mutations = [{"patchType": kind, name: {"expression": expression}}]
    return PolicyCase({"mutations": mutations, **spec}, mutating=True)


PARAM = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
PARAM_KIND = {"apiVersion": "v1", "kind": "ConfigMap"}
PARAM_OBJECTS: list[Tree] = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"params": "yes"}},
        "data": {"max": str(number)},
    }
    for name, number in (("limits", 3), ("more-limits", 1))
]

_OWNER = "Object.metadata.ownerReferences{uid: 'u', name: 'n', kind: 'K', apiVersion: 'v1'}"

#: Expressions as they are found in policies of the field, and their failures.
CASES: list[PolicyCase] = [
    _validations("object.data.a == '1'"),
    _validations("object.data.a == '2'"),
    _validations("object.data.b == '2'"),
    _validations("object.data.a == '1'", "object.data.a == '3'"),
    _validations("  object.data.a == '3'\n"),
    _validations("has(object.data.b)"),
    _validations("has(object.data.b.c)"),
    _validations("object.data.a.b == 1"),
    _validations("object.data['a'] == '2'"),
    _validations("object.data.size() == 4"),
    _validations("int(object.data.a) > 5"),
    _validations("int(object.metadata.name) > 5"),
    _validations("object.metadata.labels.exists(k, k == 'x')"),
    _validations("object.metadata.labels.all(k, v, k == v)"),
    _validations("object.metadata.namespace == request.namespace && request.name == ''"),
    _validations("request.userInfo.username == 'someone'"),
    _validations("request.userInfo.groups.exists(g, g == 'someone')"),
    _validations("'x' in request.userInfo.extra"),
    _validations("request.kind.kind == 'Pod' || request.resource.resource == 'pods'"),
    _validations("request.requestKind.group == 'x'"),
    _validations("request.operation == 'UPDATE'"),
    _validations("request.subResource == 'x'"),
    _validations("request.dryRun"),
    _validations("request.options.kind == 'x'"),
    _validations("request.options.fieldManager == 'x'"),
    _validations("oldObject != null"),
    _validations("oldObject.metadata.name == 'x'"),
    _validations("namespaceObject.metadata.name == 'x'"),
    _validations("namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'x'"),
    _validations("namespaceObject.status.phase == 'x'"),
    _validations("namespaceObject.spec.finalizers == []"),
    _validations("namespaceObject.metadata.UID == ''"),
    _validations("!authorizer.requestResource.check('create').allowed()"),
    _validations("!authorizer.group('').resource('pods').namespace('x').check('get').allowed()"),
    _validations("authorizer.serviceAccount('default', 'x').path('/healthz').check('delete').allowed()"),
    _validations(
        "authorizer.serviceAccount('default', 'x').group('').resource('pods').check('get').allowed()"
    ),
    _validations("authorizer.path('').check('get').allowed()"),
    _validations("authorizer.serviceAccount('A', 'x').path('/').check('get').allowed()"),
    _validations("authorizer.group('').resource(' ').check('get').allowed()"),
    _validations("authorizer.path('/x').check('get').reason() == 'x'"),
    _validations("authorizer.path('/x').check('get').errored()"),
    _validations("object.data.a.matches('[')"),
    _validations("object.data.a.matches(object.data.a + '[')"),
    _validations("1 / (int(object.data.a) - 1) == 1"),
    _validations("[1, 2][int(object.data.a) + 1] == 1"),
    _validations("object.data.a.split('')[7] == 'x'"),
    _validations("timestamp(object.metadata.creationTimestamp) < timestamp('2000-01-01T00:00:00Z')"),
    _validations("quantity(object.data.a).isGreaterThan(quantity('1Gi'))"),
    _validations("quantity(object.metadata.name + 'zz').isInteger()"),
    _validations("ip(object.data.a).family() == 4"),
    _validations("url(object.data.a).getHost() == ''"),
    _validations("semver(object.data.a).major() == 1"),
    _validations("format.dns1123Label().validate(object.data.a + '_').hasValue() == false"),
    _validations("object.?data.?b.orValue('x') == 'y'"),
    _validations("object.data.b.orValue('x') == 'y'"),
    _validations("sets.contains(['a'], [object.data.a])"),
    _validations("object.data.transformList(k, v, k + v) == ['x']"),
    _validations("dyn(1) == object.data.a"),
    _validations("object.data.a > 1"),
    _validations("object.data == {'a': '2'}"),
    _validations("cel.bind(x, object.data.a, x + x == '2')"),
    _validations("'%s is %d'.format([object.data.a, 3]) == 'x'"),
    _validations("variables.a == '2'", variables=[{"name": "a", "expression": "object.data.a"}]),
    _validations("variables.b == 2", variables=[{"name": "b", "expression": "object.data.zz"}]),
    _validations(
        "variables.b",
        variables=[
            {"name": "a", "expression": "int(object.data.a)"},
            {"name": "b", "expression": "variables.a > 1"},
        ],
    ),
    _validations("object.data.z == '1'", failurePolicy="Ignore"),
    _validations("object.data.a == '2'", failurePolicy="Ignore"),
    _validations("object.data.a == '2'", matchConditions=[{"name": "no", "expression": "request.dryRun"}]),
    _validations("object.data.a == '2'", matchConditions=[{"name": "yes", "expression": "!request.dryRun"}]),
    _validations("true", matchConditions=[{"name": "bad", "expression": "object.data.z == '1'"}]),
    _validations(
        "true",
        matchConditions=[
            {"name": "bad", "expression": "object.data.z == '1'"},
            {"name": "worse", "expression": "object.data.y == '1'"},
        ],
    ),
    _validations(
        "true",
        matchConditions=[
            {"name": "bad", "expression": "object.data.z == '1'"},
            {"name": "no", "expression": "false"},
        ],
    ),
    _validations(
        "object.data.a == '2'",
        matchConditions=[{"name": "ns", "expression": "namespaceObject == null"}],
    ),
    PolicyCase({"validations": [{"expression": "false", "message": "  sent by the policy "}]}),
    PolicyCase({"validations": [{"expression": "false", "messageExpression": "'a is ' + object.data.a"}]}),
    PolicyCase(
        {"validations": [{"expression": "false", "messageExpression": "object.data.z + ''", "message": "m"}]}
    ),
    PolicyCase({"validations": [{"expression": "false", "messageExpression": "'x\\ny'", "message": "m"}]}),
    PolicyCase({"validations": [{"expression": "false", "messageExpression": "'  '"}]}),
    PolicyCase(
        {
            "validations": [
                {"expression": "false", "messageExpression": "'x'.replace('x', '" + "y" * 5200 + "')"}
            ]
        }
    ),
    *(
        PolicyCase({"validations": [{"expression": "false", "reason": reason}]})
        for reason in ("Forbidden", "Invalid", "RequestEntityTooLarge")
    ),
    PolicyCase({"validations": [{"expression": "false"}]}, {"validationActions": ["Warn"]}),
    PolicyCase({"validations": [{"expression": "false"}]}, {"validationActions": ["Audit"]}),
    PolicyCase({"validations": [{"expression": "false"}]}, {"validationActions": ["Audit", "Deny"]}),
    PolicyCase({"auditAnnotations": [{"key": "k", "valueExpression": "object.data.a"}]}),
    PolicyCase({"auditAnnotations": [{"key": "k", "valueExpression": "object.data.z + ''"}]}),
    PolicyCase(
        {"validations": [{"expression": "object.data.a < params.data.max"}], "paramKind": PARAM_KIND},
        {"paramRef": PARAM},
        {"a": "5"},
    ),
    PolicyCase(
        {"validations": [{"expression": "params != null"}], "paramKind": PARAM_KIND},
    ),
    PolicyCase(
        {"validations": [{"expression": "true"}], "paramKind": PARAM_KIND},
        {"paramRef": {**PARAM, "name": "missing"}},
    ),
    PolicyCase(
        {"validations": [{"expression": "false"}], "paramKind": PARAM_KIND},
        {"paramRef": {**PARAM, "name": "missing", "parameterNotFoundAction": "Allow"}},
    ),
    PolicyCase(
        {
            "validations": [
                {
                    "expression": "int(params.data.max) > 1",
                    "messageExpression": "'of ' + params.metadata.name",
                }
            ],
            "paramKind": PARAM_KIND,
        },
        {
            "paramRef": {
                "selector": {"matchLabels": {"params": "yes"}},
                "namespace": "default",
                "parameterNotFoundAction": "Deny",
            }
        },
    ),
    PolicyCase(
        {"validations": [{"expression": "true"}], "paramKind": {"apiVersion": "v9", "kind": "Nothing"}},
        {"paramRef": PARAM},
    ),
    PolicyCase(
        {"validations": [{"expression": "true"}], "paramKind": {"apiVersion": "v1", "kind": "Node"}},
        {"paramRef": PARAM},
    ),
    PolicyCase(
        {"validations": [{"expression": "false"}]},
        {"matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}},
    ),
    PolicyCase(
        {"validations": [{"expression": "false"}]},
        {
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
            }
        },
    ),
    # Beyond the cost limit of one expression, and of all together.
    _validations(
        "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, "
        "[1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, [1,2,3,4,5,6,7,8,9,0].all(f, true))))))"
    ),
    _validations(
        *["authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()"] * 16
    ),
    # Mutations.
    _mutation("Object{metadata: Object.metadata{labels: {'x': object.data.a}}}"),
    _mutation("Object{data: {'b': '2'}}"),
    _mutation("Object{data: {'b': 2}}"),
    _mutation("Object{wrong: 'x'}"),
    _mutation("Object{metadata: Object.wrong{labels: {'x': 'y'}}}"),
    _mutation("Object{data: {'b': object.data.z}}"),
    _mutation("Object{data: {'b': object.data.z}}", failurePolicy="Ignore"),
    _mutation(f"Object{{metadata: Object.metadata{{ownerReferences: [{_OWNER}]}}}}"),
    _mutation("[JSONPatch{op: 'add', path: '/data/b', value: 'x' + object.data.a}]", patch=True),
    _mutation(
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'v'}]",
        patch=True,
    ),
    _mutation(
        "[JSONPatch{op: 'test', path: '/data/a', value: '7'}, JSONPatch{op: 'remove', path: '/data/a'}]",
        patch=True,
    ),
    _mutation("[JSONPatch{op: 'remove', path: '/data/zz'}]", patch=True),
    _mutation("[JSONPatch{op: 'replace', path: '/data', value: {'n': 'm'}}]", patch=True),
    _mutation("[JSONPatch{op: 'add', path: '/data/b', value: 5}]", patch=True),
    _mutation("[JSONPatch{op: 'move', from: '/data/a', path: '/data/c'}]", patch=True),
    _mutation("[JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}]", patch=True),
    _mutation("has(object.data.b) ? [] : [JSONPatch{op: 'add', path: '/data/b', value: 'v'}]", patch=True),
    _mutation(
        "Object{data: {variables.k: 'v'}}", variables=[{"name": "k", "expression": "'k' + object.data.a"}]
    ),
    _mutation(
        "Object{data: {'b': 'v'}}", matchConditions=[{"name": "no", "expression": "has(object.data.b)"}]
    ),
    _mutation(
        "Object{data: {'b': 'v'}}", matchConditions=[{"name": "bad", "expression": "object.data.zz == ''"}]
    ),
]

#: Policies that are rejected when they are created, for their expressions.
INVALID: list[PolicyCase] = [
    _validations("foo"),
    _validations("object.foo"),
    _validations("request.foo == 1"),
    _validations("namespaceObject.metadata.uid == ''"),
    _validations("1 + 'a' == 2"),
    _validations("'a'.startsWith(1)"),
    _validations("'a'.nothing(1)"),
    _validations("nothing(1)"),
    _validations("1"),
    _validations("request"),
    _validations("params.data.a == ''"),
    _validations("variables.a == ''"),
    _validations("variables.b == ''", variables=[{"name": "a", "expression": "1"}]),
    _validations("variables.a == ''", variables=[{"name": "a", "expression": "1"}]),
    _validations("true &&\n  foo"),
    _validations("[1, 'a'].size() == 2"),
    _validations("object.data.all(x, 1)"),
    _validations("(1).all(x, true)"),
    _validations("request.name.foo == ''"),
    _validations("jsonpatch.escapeKey('a') == 'a'"),
    PolicyCase({"validations": [{"expression": "true", "messageExpression": "1"}]}),
    PolicyCase(
        {
            "validations": [
                {"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"}
            ]
        }
    ),
    PolicyCase({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}),
    _validations("true", matchConditions=[{"name": "n", "expression": "variables.a"}]),
    _mutation("Object"),
    _mutation("{'a': 1}"),
    _mutation("[]", patch=True),
    _mutation("[JSONPatch{op: 1}]", patch=True),
    _mutation("[JSONPatch{wrong: 'a'}]", patch=True),
    _mutation("Objects{}"),
]

_ATOMS = {
    "string": (
        "'1'",
        "'x'",
        "object.data.a",
        "object.metadata.name",
        "request.operation",
        "object.data.z",
        "request.namespace",
    ),
    "int": (
        "1",
        "-3",
        "int(object.data.a)",
        "size(object.data)",
        "object.data.a.size()",
        "int(object.metadata.name)",
    ),
    "bool": (
        "true",
        "false",
        "has(object.data.z)",
        "request.dryRun",
        "'a' in object.data",
        "oldObject == null",
    ),
    "list": ("[1, 2, 3]", "request.userInfo.groups.map(g, g.size())", "[int(object.data.a)]"),
}
_TESTS = ("startsWith", "contains", "endsWith", "matches")


def random_expression(choose: random.Random, kind: str = "bool", depth: int = 4) -> str:
    """Return a random expression of a type; most compile, many fail at run time."""
    if depth == 0 or choose.random() < 0.1:
        return choose.choice(_ATOMS[kind])

    def part(of: str) -> str:
        return random_expression(choose, of, depth - 1)

    makers: dict[str, tuple[Callable[[], str], ...]] = {
        "bool": (
            lambda: f"({part('bool')} {choose.choice(('&&', '||'))} {part('bool')})",
            lambda: f"!({part('bool')})",
            lambda: f"({part('int')} {choose.choice(('==', '<', '>=', '!='))} {part('int')})",
            lambda: f"({part('string')} {choose.choice(('==', '!=', '<'))} {part('string')})",
            lambda: f"{part('string')}.{choose.choice(_TESTS)}({part('string')})",
            lambda: f"{part('list')}.{choose.choice(('all', 'exists', 'exists_one'))}(x, x > {part('int')})",
            lambda: f"({part('int')} in {part('list')})",
            lambda: f"({part('bool')} ? {part('bool')} : {part('bool')})",
        ),
        "int": (
            lambda: f"({part('int')} {choose.choice('+-*/%')} {part('int')})",
            lambda: f"size({part('string')})",
            lambda: f"{part('list')}[{choose.choice('012')}]",
            lambda: f"{part('string')}.indexOf({part('string')})",
        ),
        "string": (
            lambda: f"({part('string')} + {part('string')})",
            lambda: f"string({part('int')})",
            lambda: f"{part('string')}.{choose.choice(('lowerAscii', 'upperAscii', 'trim'))}()",
            lambda: f"{part('string')}.substring({choose.choice('012')})",
            lambda: f"object.?data.?{choose.choice('az')}.orValue({part('string')})",
        ),
        "list": (
            lambda: f"{part('list')}.map(y, y + {part('int')})",
            lambda: f"{part('list')}.filter(y, y > {part('int')})",
            lambda: f"({part('list')} + {part('list')})",
        ),
    }
    return choose.choice(makers[kind])()


def random_cases(seed: int, count: int) -> list[PolicyCase]:
    """Return policies with random expressions."""
    choose = random.Random(seed)
    cases = []
    for _ in range(count):
        validations: list[Tree] = [{"expression": random_expression(choose)}]
        if choose.random() < 0.5:
            validations[0]["messageExpression"] = random_expression(choose, "string", 3)
        spec: Tree = {"validations": validations, "failurePolicy": choose.choice(("Fail", "Fail", "Ignore"))}
        if choose.random() < 0.3:
            spec["matchConditions"] = [{"name": "m", "expression": random_expression(choose, "bool", 3)}]
        cases.append(PolicyCase(spec, data={"a": choose.choice(("1", "7", "x"))}))
    return cases
