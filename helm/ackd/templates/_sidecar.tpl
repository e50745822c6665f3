{{/*
The sidecar as it is put into pods. Texts of the form <<name>> are filled in from a pod's annotation
ackd.dev/name; a variable whose value is empty then is left out. The webhook reads this as JSON; the
policy has it turned into CEL. Both are made here.
*/}}

{{- define "ackd.sidecar.container" -}}
name: ackd
image: "<<image>>"
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args: [serve]
env:
  - {name: ACKD_CONFIG, value: /etc/ackd/config/ackd.toml}
  - name: ACKD_IDENTITY
    valueFrom:
      fieldRef: {apiVersion: v1, fieldPath: metadata.name}
  - {name: ACKD_STATE_DIR, value: /var/lib/ackd}
  - {name: TMPDIR, value: /var/lib/ackd}
  - {name: ACKD_SERVER__LISTEN, value: "127.0.0.1:7080"}
  - {name: ACKD_SERVER__ADMIN_LISTEN, value: "127.0.0.1:7081"}
  - {name: ACKD_SERVER__HEALTH_LISTEN, value: ":7082"}
  - {name: ACKD_PEERS__LISTEN, value: ":7083"}
  - name: ACKD_PEERS__ADVERTISE
    valueFrom:
      fieldRef: {apiVersion: v1, fieldPath: status.podIP}
  - {name: ACKD_DEFAULT__SERVER__STOP, value: release}
  - {name: ACKD_DEFAULT__SERVER__DRAIN_MS, value: 1500ms}
  - {name: ACKD_APP__HEALTH_URL, value: "<<app-health>>"}
  - {name: ACKD_DEFAULT__TELEMETRY__LOG_LEVEL, value: {{ .Values.sidecar.logLevel }}}
{{- if .Values.sidecar.tokenSecret.name }}
  - {name: ACKD_SERVER__TOKEN_FILE, value: /etc/ackd/token/{{ .Values.sidecar.tokenSecret.key }}}
{{- end }}
{{- if .Values.store.urlSecret.name }}
  - name: ACKD_STORE__URL
    valueFrom:
      secretKeyRef:
        name: {{ .Values.store.urlSecret.name }}
        key: {{ .Values.store.urlSecret.key }}
{{- else if include "ackd.storeUrl" . }}
  - {name: ACKD_STORE__URL, value: {{ include "ackd.storeUrl" . | quote }}}
{{- end }}
{{- if .Values.store.passwordSecret.name }}
  - {name: ACKD_STORE__PASSWORD_FILE, value: /etc/ackd/store/{{ .Values.store.passwordSecret.key }}}
{{- end }}
{{- with .Values.sidecar.env }}
{{ toYaml . | indent 2 }}
{{- end }}
ports:
  - {name: ackd-health, containerPort: 7082, protocol: TCP}
  - {name: ackd-peers, containerPort: 7083, protocol: TCP}
startupProbe:
  httpGet: {path: /readyz, port: 7082, scheme: HTTP}
  periodSeconds: 1
  timeoutSeconds: 2
  successThreshold: 1
  failureThreshold: {{ int .Values.sidecar.startSeconds }}
livenessProbe:
  httpGet: {path: /livez, port: 7082, scheme: HTTP}
  periodSeconds: 10
  timeoutSeconds: 5
  successThreshold: 1
  failureThreshold: 6
lifecycle:
  preStop:
    exec:
      command: [ackd, drain, "--url=http://127.0.0.1:7081"]
resources:
  requests: {cpu: "<<cpu>>", memory: "<<memory>>"}
  limits: {memory: "<<memory>>"}
securityContext:
{{ include "ackd.restricted" . | indent 2 }}
terminationMessagePath: /dev/termination-log
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - {name: ackd-config, mountPath: /etc/ackd/config, readOnly: true}
  - {name: ackd-state, mountPath: /var/lib/ackd}
  - {name: ackd-nothing, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- if .Values.sidecar.tokenSecret.name }}
  - {name: ackd-token, mountPath: /etc/ackd/token, readOnly: true}
{{- end }}
{{- if .Values.store.passwordSecret.name }}
  - {name: ackd-store, mountPath: /etc/ackd/store, readOnly: true}
{{- end }}
{{- range $index, $name := .Values.sidecar.secrets }}
  - {name: ackd-secret-{{ $index }}, mountPath: /etc/ackd/secrets/{{ $name }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "ackd.sidecar.volumes" -}}
- name: ackd-config
  configMap: {name: "<<config>>", defaultMode: 292}
- name: ackd-state
  emptyDir: {sizeLimit: {{ .Values.sidecar.stateSize | quote }}}
- name: ackd-nothing
  emptyDir: {medium: Memory, sizeLimit: "4Ki"}
{{- if .Values.sidecar.tokenSecret.name }}
- name: ackd-token
  secret: {secretName: {{ .Values.sidecar.tokenSecret.name | quote }}, defaultMode: 292}
{{- end }}
{{- if .Values.store.passwordSecret.name }}
- name: ackd-store
  secret: {secretName: {{ .Values.store.passwordSecret.name | quote }}, defaultMode: 292}
{{- end }}
{{- range $index, $name := .Values.sidecar.secrets }}
- name: ackd-secret-{{ $index }}
  secret: {secretName: {{ $name | quote }}, defaultMode: 292}
{{- end }}
{{- end -}}

{{/* What the application's containers get. */}}
{{- define "ackd.sidecar.appEnv" -}}
- {name: ACKD_URL, value: "http://127.0.0.1:7080"}
{{- if .Values.sidecar.tokenSecret.name }}
- {name: ACKD_TOKEN_FILE, value: /etc/ackd/token/{{ .Values.sidecar.tokenSecret.key }}}
{{- end }}
{{- end -}}

{{- define "ackd.sidecar.appMounts" -}}
{{- if .Values.sidecar.tokenSecret.name }}
- {name: ackd-token, mountPath: /etc/ackd/token, readOnly: true}
{{- else }}
[]
{{- end }}
{{- end -}}

{{/* Annotations that people may write: pattern of the whole value, that in words, the default. */}}
{{- define "ackd.sidecar.annotations" -}}
inject:
  pattern: "true|false"
  words: true or false
  default: "true"
config:
  pattern: "[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"
  words: the name of a ConfigMap, of at most 63 characters (it becomes a label)
  default: {{ .Values.sidecar.configMap | quote }}
image:
  pattern: "[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}"
  words: the name of an image
  default: {{ include "ackd.image" (list . .Values.image) | quote }}
cpu:
  pattern: "[0-9]{1,9}([.][0-9]{1,3})?m?"
  words: an amount of CPU like 100m or 0.5
  default: {{ .Values.sidecar.cpu | quote }}
memory:
  pattern: "[0-9]{1,15}(Ki|Mi|Gi|k|M|G)?"
  words: an amount of memory like 128Mi
  default: {{ .Values.sidecar.memory | quote }}
app-env:
  pattern: "true|false"
  words: true or false
  default: {{ .Values.sidecar.appEnv | toString | quote }}
app-health:
  pattern: "http://(127[.]0[.]0[.]1|localhost):[0-9]{1,5}(/[!-~]{0,400})?"
  words: an address of the application like http://127.0.0.1:8080/healthz
  default: ""
{{- end -}}

{{/* Everything of it but the hash, as JSON with sorted keys. */}}
{{- define "ackd.sidecar.settings" -}}
{{- $all := dict
  "version" .Chart.AppVersion
  "container" (include "ackd.sidecar.container" . | fromYaml)
  "volumes" (include "ackd.sidecar.volumes" . | fromYamlArray)
  "app_env" (include "ackd.sidecar.appEnv" . | fromYamlArray)
  "app_mounts" (include "ackd.sidecar.appMounts" . | fromYamlArray)
  "pull_secrets" (list)
  "ports" (list 7080 7081 7082 7083)
  "annotations" (include "ackd.sidecar.annotations" . | fromYaml)
-}}
{{- range .Values.image.pullSecrets }}
{{- $_ := set $all "pull_secrets" (append $all.pull_secrets .name) }}
{{- end }}
{{- toJson $all -}}
{{- end -}}

{{- define "ackd.sidecar.hash" -}}
{{- include "ackd.sidecar.settings" . | sha256sum | trunc 16 -}}
{{- end -}}

{{/* Of the ackd.toml that this chart writes; empty where it writes none. */}}
{{- define "ackd.config.hash" -}}
{{- if .Values.config.subscriptions -}}
{{- include "ackd.config" . | sha256sum | trunc 8 -}}
{{- end -}}
{{- end -}}
