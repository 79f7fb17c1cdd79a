{{- define "driver.name" -}}
{{ .Values.nameOverride | default .Release.Name }}
{{- end }}

{{- define "driver.selector" -}}
app.kubernetes.io/name: plimsoll-cpu-driver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "driver.labels" -}}
{{ include "driver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
