{{- define "plimsoll.prefix" -}}
{{ .Values.nameOverride | default .Release.Name }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* Names and labels of a component: (dict "root" . "component" "scheduler"). */ -}}
{{- define "plimsoll.name" -}}
{{ include "plimsoll.prefix" .root }}-{{ .component }}
{{- end }}

{{- define "plimsoll.selector" -}}
app.kubernetes.io/name: plimsoll-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: plimsoll
{{- end }}

{{- /* Rules of a role whose owner reviews the tokens of clients that read its metrics. */ -}}
{{- define "plimsoll.reviews" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{- /* Security context of a container that needs neither root nor a capability. */ -}}
{{- define "plimsoll.nonroot" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
{{ include "plimsoll.restricted" . }}
{{- end }}

{{- define "plimsoll.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* ServiceAccount of a component, and the binding of its ClusterRole. */ -}}
{{- define "plimsoll.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "plimsoll.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "plimsoll.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "plimsoll.name" . }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "plimsoll.name" . }}
subjects:
- kind: ServiceAccount
  name: {{ include "plimsoll.name" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- /* NetworkPolicy of a component: its port for the peers of .Values.networkPolicy.from. */ -}}
{{- define "plimsoll.networkpolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "plimsoll.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "plimsoll.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  {{- with .root.Values.networkPolicy.from }}
  ingress:
  - from:
    {{- toYaml . | nindent 4 }}
    ports:
    - port: http
  {{- end }}
{{- end }}

{{- define "plimsoll.scheduler.config" -}}
kind: SchedulerConfiguration
placeholders:
  {{- toYaml .Values.placeholders | nindent 2 }}
{{- with .Values.scheduler.featureGates }}
featureGates:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.config }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
