"""Client guarantees, tested against every available server.

The targets: Plimsoll's own server over HTTP ("embedded"), the same in process ("within"), and a real
kube-apiserver when KUBEBUILDER_ASSETS names a directory with `etcd` and `kube-apiserver`. A cluster that
already runs can be used in its place: name its kubeconfig in PLIMSOLL_TEST_KUBECONFIG (namespaces are left
behind).
"""
