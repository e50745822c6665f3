{{/* The configuration as TOML. Numbers of values are floats in Helm: whole ones are written whole. */}}
{{- define "ackd.config" -}}
{{- $config := dict }}
{{- range $key := list "brokers" "subscriptions" "store" "publish" "peers" "traces" "server" "app" "sqs" "telemetry" }}
{{- with get $.Values.config $key }}
{{- $_ := set $config $key . }}
{{- end }}
{{- end }}
{{- include "ackd.toml.table" (dict "path" "" "table" $config) }}
{{- end -}}

{{/* Scalars and lists of a table first, then its tables. */}}
{{- define "ackd.toml.table" -}}
{{- $path := .path -}}
{{- range $key := keys .table | sortAlpha }}
{{- $value := get $.table $key }}
{{- if not (kindIs "map" $value) }}
{{ include "ackd.toml.key" $key }} = {{ include "ackd.toml.value" $value }}
{{- end }}
{{- end }}
{{- range $key := keys .table | sortAlpha }}
{{- $value := get $.table $key }}
{{- if kindIs "map" $value }}
{{- $below := include "ackd.toml.key" $key }}
{{- if $path }}{{ $below = printf "%s.%s" $path $below }}{{ end }}

[{{ $below }}]
{{- include "ackd.toml.table" (dict "path" $below "table" $value) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ackd.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ . | mustToRawJson }}{{ end -}}
{{- end -}}

{{- define "ackd.toml.value" -}}
{{- if kindIs "slice" . -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}{{ include "ackd.toml.value" $each }}{{ end }}]
{{- else if kindIs "map" . -}}
{ {{ range $index, $key := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ include "ackd.toml.key" $key }} = {{ include "ackd.toml.value" (get $ $key) }}{{ end }} }
{{- else if kindIs "string" . -}}
{{ mustToRawJson . }}
{{- else if kindIs "float64" . -}}
{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}
