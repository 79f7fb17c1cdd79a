{{- define "prefix" -}}
{{ .Values.nameOverride | default .Release.Name }}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "common.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: plimsoll
{{- end }}

{{- define "driver.name" -}}
{{ include "prefix" . }}-cpu-driver
{{- end }}

{{- define "driver.selector" -}}
app.kubernetes.io/name: plimsoll-cpu-driver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "driver.labels" -}}
{{ include "driver.selector" . }}
{{ include "common.labels" . }}
{{- end }}

{{- define "memory.name" -}}
{{ include "prefix" . }}-memory-driver
{{- end }}

{{- define "memory.selector" -}}
app.kubernetes.io/name: plimsoll-memory-driver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "memory.labels" -}}
{{ include "memory.selector" . }}
{{ include "common.labels" . }}
{{- end }}

{{- define "scheduler.name" -}}
{{ include "prefix" . }}-scheduler
{{- end }}

{{- define "scheduler.selector" -}}
app.kubernetes.io/name: plimsoll-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "scheduler.labels" -}}
{{ include "scheduler.selector" . }}
{{ include "common.labels" . }}
{{- end }}

{{- define "dashboard.name" -}}
{{ include "prefix" . }}-dashboard
{{- end }}

{{- define "dashboard.selector" -}}
app.kubernetes.io/name: plimsoll-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dashboard.labels" -}}
{{ include "dashboard.selector" . }}
{{ include "common.labels" . }}
{{- end }}
