// Owns: the what-if question as it is typed: its fields, where they come from (an address may bring some), and
// the JSON that is sent. What was typed is kept while other pages are looked at.

/** Rules of stock schedulers that the answer can be compared with. */
export const PROFILES = [
  ["kube-1.36-default", "stock 1.36, default gates (two books)"],
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
/** Fields that are folded away until they are wanted. */
export const RARE = ["drain", "cordon", "addNodes", "like", "taints", "taintDevices", "policy"];

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

export function empty() {
  return { ...EMPTY, as: [] };
}

export function isEmpty(form) {
  return Object.entries(EMPTY).every(([key, value]) => (key === "as" ? !form.as.length : form[key] === value));
}

/** The fields that an address brings, as `?remove=Pod/a/b,Pod/a/c`; null if it brings none. */
export function fromQuery(query) {
  const given = ["add", "remove", "drain", "cordon"].filter((key) => query.get(key));
  if (!given.length) return null;
  const form = empty();
  for (const key of given) form[key] = key === "remove" ? names(query.get(key)).join("\n") : query.get(key);
  return form;
}

/** Names with commas or line ends between them. */
export function names(text) {
  return text.split(/[\n,]/).map((one) => one.trim()).filter(Boolean);
}

function lines(text) {
  return text.split("\n").map((one) => one.trim()).filter(Boolean);
}

/** What is sent: the fields that say something. */
export function toJson(form) {
  const question = {
    add: form.add.trim() && form.add,
    remove: names(form.remove),
    drain: names(form.drain),
    cordon: names(form.cordon),
    taints: lines(form.taints),
    taintDevices: lines(form.taintDevices),
    like: form.like.trim(),
    policy: form.policy,
    as: form.as,
    replicas: whole(form.replicas),
    addNodes: whole(form.addNodes),
    exhaustive: form.exhaustive || null,
    preempt: form.preempt ? null : false,
  };
  const says = ([, value]) => value != null && value !== "" && !(Array.isArray(value) && !value.length);
  return Object.fromEntries(Object.entries(question).filter(says));
}

function whole(text) {
  return /^\d+$/.test(text) ? Number(text) : null;
}
