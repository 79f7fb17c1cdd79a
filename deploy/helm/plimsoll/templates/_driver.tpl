{{- /* Objects of the drivers: (dict "root" . "values" .Values.driver "driver" "cpu" "component" "cpu-driver"). */ -}}
{{- define "plimsoll.driver.clusterrole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "plimsoll.name" . }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- if eq .driver "cpu" }}
# Claims that are known by UID only, from CDI files, are found in the list.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [get, list]
{{- else }}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [get]
{{- end }}
- apiGroups: [resource.k8s.io]
  resources: [resourceslices]
  verbs: [list, watch, create, update, delete]
{{- if .reports }}
# Reports what claims have in their status: entries of this driver, in claims allocated to its own node.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/status]
  verbs: [patch]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/driver]
  resourceNames: [dra.{{ .driver }}]
  verbs: ["associated-node:patch"]
{{- end }}
{{- if .cgroups }}
# Without NRI the driver reads from the API which containers use which claims.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end }}
# Reviews the tokens of clients that read metrics.
{{ include "plimsoll.reviews" . }}
---
{{ include "plimsoll.binding" . }}
{{- end }}

{{- define "plimsoll.driver.admissionpolicy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "plimsoll.name" . }}-own-node
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE, DELETE]
      resources: [resourceslices]
  matchConditions:
  - name: of-the-driver
    expression: request.userInfo.username == "system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "plimsoll.name" . }}"
  variables:
  - name: callerNode
    expression: request.userInfo.?extra[?"authentication.kubernetes.io/node-name"][?0].orValue("")
  - name: slice
    expression: 'request.operation == "DELETE" ? oldObject : object'
  - name: sliceNode
    expression: variables.slice.spec.?nodeName.orValue("")
  validations:
  - expression: variables.callerNode != ""
    message: the token does not contain a node name; use a token that is bound to a pod
  - expression: variables.callerNode == variables.sliceNode
    messageExpression: '"a driver on node " + variables.callerNode + " may not write slices of node " + variables.sliceNode'
  - expression: variables.slice.spec.driver == "dra.{{ .driver }}"
    message: the {{ .title }} driver may write slices of dra.{{ .driver }} only
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "plimsoll.name" . }}-own-node
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
spec:
  policyName: {{ include "plimsoll.name" . }}-own-node
  validationActions: [Deny]
{{- end }}

{{- /* A later file of containerd replaces the section of an earlier one: each file has all required plugins. */ -}}
{{- define "plimsoll.driver.required" -}}
{{- if and .Values.driver.enabled .Values.driver.requiredPlugin.install -}}
"dra.cpu"
{{- if and .Values.memoryDriver.enabled .Values.memoryDriver.requiredPlugin.install }}, {{ end }}
{{- end }}
{{- if and .Values.memoryDriver.enabled .Values.memoryDriver.requiredPlugin.install -}}
"dra.memory"
{{- end }}
{{- end }}

{{- define "plimsoll.driver.containerd" -}}
# Read by containerd after its next restart: no container is created while the drivers are not connected.
containerd.toml: |
  version = 3
  [plugins.'io.containerd.nri.v1.nri'.default_validator]
    enable = true
    required_plugins = [{{ include "plimsoll.driver.required" .root }}]
    tolerate_missing_plugins_annotation = "tolerate-missing-nri-plugins.noderesource.dev"
{{- end }}

{{- define "plimsoll.driver.daemonset" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "plimsoll.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "plimsoll.selector" . | nindent 6 }}
  {{- with .values.updateStrategy }}
  updateStrategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "plimsoll.labels" . | nindent 8 }}
        {{- with .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ toYaml .config | sha256sum }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "plimsoll.name" . }}
      priorityClassName: {{ .values.priorityClassName }}
      # Pinning must not depend on the pod network, which may not be ready yet.
      hostNetwork: true
      terminationGracePeriodSeconds: 30
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .values.requiredPlugin.install }}
      initContainers:
      - name: runtime-config
        image: {{ include "plimsoll.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        command: [cp, /etc/plimsoll/containerd.toml, /host/containerd/50-dra-{{ .driver }}.toml]
        securityContext:
          runAsUser: 0
          {{- include "plimsoll.restricted" . | nindent 10 }}
        volumeMounts:
        - name: config
          mountPath: /etc/plimsoll
          readOnly: true
        - name: runtime-config
          mountPath: /host/containerd
      {{- end }}
      containers:
      - name: driver
        image: {{ include "plimsoll.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        args:
        - driver
        - {{ .driver }}
        {{- if .root.Values.logging.verbose }}
        - -v{{ if eq .driver "cpu" }}=4{{ end }}
        {{- end }}
        - --log-format={{ .root.Values.logging.format }}
        {{- if eq .driver "cpu" }}
        - --config=/etc/plimsoll/config.yaml
        {{- end }}
        - --bind-address={{ .values.http.address }}:{{ .values.http.port }}
        - --cert-dir={{ if .values.http.tlsSecret }}/etc/plimsoll-tls{{ else }}/tmp/tls{{ end }}
        - --kubelet-root-dir={{ .values.kubeletRootDir }}
        - --hostname-override=$(NODE_NAME)
        {{- if eq .driver "cpu" }}
        {{- if .values.exposePCIeRoots }}
        - --expose-pcie-roots
        {{- end }}
        {{- else }}
        - --node-allocatable-form={{ .values.nodeAllocatableForm }}
        - --enforcement={{ .values.enforcement }}
        {{- with .values.reservedMemory }}
        - --reserved-memory={{ . }}
        {{- end }}
        {{- end }}
        env:
        # One heap for all threads, which saves 2 MB.
        - name: MALLOC_ARENA_MAX
          value: "1"
        - name: NODE_NAME
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        - name: HOST_ROOT
          value: /host
        ports:
        - name: http
          containerPort: {{ .values.http.port }}
        # Liveness does not include the connections: a restart would not bring the runtime or the kubelet back.
        livenessProbe:
          httpGet:
            path: /livez
            port: http
            scheme: HTTPS
            {{- with .values.http.address }}
            host: {{ . | quote }}
            {{- end }}
          initialDelaySeconds: 10
          periodSeconds: 10
        readinessProbe:
          httpGet:
            path: /readyz
            port: http
            scheme: HTTPS
            {{- with .values.http.address }}
            host: {{ . | quote }}
            {{- end }}
          periodSeconds: 5
        {{- with .values.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        # The sockets and directories belong to root; no other privilege of root is needed.
        securityContext:
          runAsUser: 0
          {{- include "plimsoll.restricted" . | nindent 10 }}
          {{- with .values.seLinuxOptions }}
          seLinuxOptions:
            {{- toYaml . | nindent 12 }}
          {{- end }}
        volumeMounts:
        {{- if eq .driver "cpu" }}
        - name: config
          mountPath: /etc/plimsoll
          readOnly: true
        {{- end }}
        - name: sys
          mountPath: /host/sys
          readOnly: true
        {{- if .cgroups }}
        - name: cgroups
          mountPath: /host/sys/fs/cgroup
        {{- end }}
        - name: plugin
          mountPath: {{ .values.kubeletRootDir }}/plugins/dra.{{ .driver }}
        - name: registry
          mountPath: {{ .values.kubeletRootDir }}/plugins_registry
        {{- if .nri }}
        - name: nri
          mountPath: /var/run/nri
        {{- end }}
        - name: cdi
          mountPath: /var/run/cdi
        - name: tmp
          mountPath: /tmp
        {{- if .values.http.tlsSecret }}
        - name: tls
          mountPath: /etc/plimsoll-tls
          readOnly: true
        {{- end }}
        {{- with .values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      {{- if or (eq .driver "cpu") .values.requiredPlugin.install }}
      - name: config
        configMap:
          name: {{ include "plimsoll.name" . }}
      {{- end }}
      - name: sys
        hostPath:
          path: /sys
          type: Directory
      {{- if .cgroups }}
      - name: cgroups
        hostPath:
          path: /sys/fs/cgroup
          type: Directory
      {{- end }}
      - name: plugin
        hostPath:
          path: {{ .values.kubeletRootDir }}/plugins/dra.{{ .driver }}
          type: DirectoryOrCreate
      - name: registry
        hostPath:
          path: {{ .values.kubeletRootDir }}/plugins_registry
          type: DirectoryOrCreate
      {{- if .nri }}
      # The directory, not the socket: a runtime that restarts creates a new socket.
      - name: nri
        hostPath:
          path: /var/run/nri
          type: DirectoryOrCreate
      {{- end }}
      - name: cdi
        hostPath:
          path: /var/run/cdi
          type: DirectoryOrCreate
      {{- if .values.requiredPlugin.install }}
      - name: runtime-config
        hostPath:
          path: {{ .values.requiredPlugin.directory }}
          type: DirectoryOrCreate
      {{- end }}
      {{- with .values.http.tlsSecret }}
      - name: tls
        secret:
          secretName: {{ . }}
          defaultMode: 0400
      {{- end }}
      - name: tmp
        emptyDir: {}
      {{- with .values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}
