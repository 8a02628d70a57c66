{{/* Labels by which everything finds the pods of this release. */}}
{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Whether an autoscaler decides how many pods there are. */}}
{{- define "dragoman.scaled" -}}
{{- if and (eq .Values.store.kind "postgres") (ne .Values.autoscaling.kind "none") }}yes{{ end }}
{{- end }}

{{/* How an autoscaler takes pods away: a pod that leaves hands its tasks to others. */}}
{{- define "dragoman.behavior" -}}
scaleDown:
  stabilizationWindowSeconds: 600
  policies:
    - type: Pods
      value: 1
      periodSeconds: 120
{{- end }}
