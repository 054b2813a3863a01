{{- define "mm2py.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "mm2py.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mm2py.labels" -}}
{{ include "mm2py.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: mm2py
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "mm2py.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "mm2py.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "mm2py.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The settings file: what the values say, and behind it what the chart decides, which counts. */}}
{{- define "mm2py.settings" -}}
{{- $settings := required "settings is empty: give it with --set-file settings=mm2.properties" .Values.settings -}}
{{- if regexMatch "(?m)^\\s*config\\.providers\\s*[=:]" $settings -}}
{{- fail "settings names config.providers, and the chart does: secrets, for files of secrets.existingSecret." -}}
{{- end -}}
{{- if regexMatch "(?m)^\\s*(admin\\.)?listeners\\s*[=:]" $settings -}}
{{- fail "settings names listeners or admin.listeners, and the chart does: see rest and probes in its values." -}}
{{- end -}}
{{ $settings | trimSuffix "\n" }}

# What follows is the chart's.
config.providers = secrets
config.providers.secrets.class = org.apache.kafka.common.config.provider.DirectoryConfigProvider
config.providers.secrets.param.allowed.paths = /etc/mm2py
admin.listeners = http://0.0.0.0:{{ .Values.probes.port }}
{{- if .Values.rest.enabled }}
listeners = https://0.0.0.0:{{ .Values.rest.port }}
listeners.https.ssl.keystore.type = PEM
listeners.https.ssl.keystore.certificate.chain = ${secrets:/etc/mm2py/rest-tls:tls.crt}
listeners.https.ssl.keystore.key = ${secrets:/etc/mm2py/rest-tls:tls.key}
rest.users.file = /etc/mm2py/rest-users/{{ .Values.rest.users.key }}
rest.hosts = {{ include "mm2py.restHosts" . }}
{{- else }}
listeners =
{{- end }}
{{- end -}}

{{- define "mm2py.restHosts" -}}
{{- $name := printf "%s-rest" (include "mm2py.name" .) -}}
{{- $of := printf "%s.%s" $name .Release.Namespace -}}
{{- concat (list $name $of (printf "%s.svc" $of) (printf "%s.svc.cluster.local" $of)) .Values.rest.hosts | join ", " -}}
{{- end -}}

{{- define "mm2py.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "mm2py.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What each pod of the chart has: pods that only ask, too. Takes a dict of root and config, the ConfigMap's name. */}}
{{- define "mm2py.volumes" -}}
- name: config
  configMap:
    name: {{ .config }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .root.Values.secrets.existingSecret }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if .root.Values.rest.enabled }}
- name: rest-tls
  secret:
    secretName: {{ required "rest.enabled takes rest.tls.existingSecret" .root.Values.rest.tls.existingSecret }}
    defaultMode: 0440
- name: rest-users
  secret:
    secretName: {{ required "rest.enabled takes rest.users.existingSecret" .root.Values.rest.users.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "mm2py.volumeMounts" -}}
- name: config
  mountPath: /etc/mm2py/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if .Values.secrets.existingSecret }}
- name: secrets
  mountPath: /etc/mm2py/secrets
  readOnly: true
{{- end }}
{{- if .Values.rest.enabled }}
- name: rest-tls
  mountPath: /etc/mm2py/rest-tls
  readOnly: true
- name: rest-users
  mountPath: /etc/mm2py/rest-users
  readOnly: true
{{- end }}
{{- end -}}

{{- define "mm2py.container" -}}
image: {{ include "mm2py.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "mm2py.securityContext" . | nindent 2 }}
env:
  - name: HOME
    value: /tmp
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  {{- include "mm2py.volumeMounts" . | nindent 2 }}
{{- end -}}

{{- define "mm2py.pod" -}}
serviceAccountName: {{ include "mm2py.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "mm2py.podSecurityContext" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
