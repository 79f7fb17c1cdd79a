// What-if request: the form's fields, their values from the URL, and the JSON that is sent.

/** Upstream schedulers to compare the result with. */
export const PROFILES = [
  ["kube-1.36-default", "stock 1.36, default gates (two ledgers)"],
  ["kube-1.36", "stock 1.36, node-allocatable gate on"],
  ["kube-1.37", "stock 1.37, node-allocatable gate on"],
];
export const POLICIES = ["AddPerClaim", "AddPerReference", "Max", "ConsumeFrom"];
export const EXAMPLE = `apiVersion: v1
kind: Pod
metadata: {name: trial, namespace: default}
spec:
  containers:
  - name: main
    image: app
    resources: {requests: {cpu: "2", memory: 1Gi}}
`;
/** Fields that are collapsed by default. */
export const ADVANCED = ["drain", "cordon", "addNodes", "like", "taints", "taintDevices", "policy"];

const EMPTY = {
  add: "",
  replicas: "",
  remove: "",
  drain: "",
  cordon: "",
  addNodes: "",
  like: "",
  taints: "",
  taintDevices: "",
  policy: "",
  preempt: true,
  exhaustive: false,
  as: [],
};

export function emptyForm() {
  return { ...EMPTY, as: [] };
}

export function isEmpty(form) {
  return Object.entries(EMPTY).every(([key, value]) => (key === "as" ? !form.as.length : form[key] === value));
}

/** Return the form of a URL query such as `?remove=Pod/a/b,Pod/a/c`; null if it has no fields. */
export function fromQuery(query) {
  const given = Object.keys(EMPTY).filter((key) => query.get(key));
  if (!given.length) return null;
  const form = emptyForm();
  for (const key of given) {
    const text = query.get(key);
    if (key === "as") form.as = names(text).filter((one) => PROFILES.some(([known]) => known === one));
    else if (typeof EMPTY[key] === "boolean") form[key] = text === "true";
    else form[key] = key === "remove" ? names(text).join("\n") : text;
  }
  return form;
}

/** Return the URL query of a form: the fields that are set, so that a link asks the same question. */
export function toQuery(form) {
  const given = {};
  for (const [key, value] of Object.entries(form)) {
    if (key === "as") given.as = value.join(",");
    else if (value !== EMPTY[key]) given[key] = key === "remove" ? names(value).join(",") : String(value);
  }
  return given;
}

/** Split names at commas and newlines. */
export function names(text) {
  return text.split(/[\n,]/).map((one) => one.trim()).filter(Boolean);
}

/** Return the fields of a form after a change of a node: `drain`, `cordon`, `remove`, or `like`: one more like it. */
export function withNode(form, node, action) {
  const more = (text, name, separator) => (names(text).includes(name) ? text : [...names(text), name].join(separator));
  if (action === "remove") return { remove: more(form.remove, `Node/${node}`, "\n") };
  if (action === "like") return { like: node, addNodes: String(form.like === node ? (integer(form.addNodes) || 0) + 1 : 1) };
  return { [action]: more(form[action], node, ", ") };
}

function lines(text) {
  return text.split("\n").map((one) => one.trim()).filter(Boolean);
}

/** Return the request body: the fields that are set. */
export function toJson(form) {
  const body = {
    add: form.add.trim() && form.add,
    remove: names(form.remove),
    drain: names(form.drain),
    cordon: names(form.cordon),
    taints: lines(form.taints),
    taintDevices: lines(form.taintDevices),
    like: form.like.trim(),
    policy: form.policy,
    as: form.as,
    replicas: integer(form.replicas),
    addNodes: integer(form.addNodes),
    exhaustive: form.exhaustive || null,
    preempt: form.preempt ? null : false,
  };
  const isSet = ([, value]) => value != null && value !== "" && !(Array.isArray(value) && !value.length);
  return Object.fromEntries(Object.entries(body).filter(isSet));
}

function integer(text) {
  return /^\d+$/.test(text) ? Number(text) : null;
}
