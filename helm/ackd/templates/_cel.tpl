{{/*
A value as CEL. Every part is dyn(), as CEL's literals take one type only. <<name>> becomes the
variable of the annotation.
*/}}
{{- define "ackd.cel" -}}
{{- if kindIs "map" . -}}
dyn({ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ $key | toJson }}: {{ include "ackd.cel" (get $ $key) }}{{- end -}} })
{{- else if kindIs "slice" . -}}
dyn([ {{- range $index, $each := . }}{{ if $index }}, {{ end }}{{ include "ackd.cel" $each }}{{- end -}} ])
{{- else if kindIs "string" . -}}
{{- if regexMatch "^<<[a-z-]+>>$" . -}}
dyn(variables.{{ . | trimPrefix "<<" | trimSuffix ">>" | replace "-" "_" }})
{{- else -}}
dyn({{ include "ackd.celText" . }})
{{- end -}}
{{- else if kindIs "bool" . -}}
dyn({{ . }})
{{- else -}}
dyn({{ int64 . }})
{{- end -}}
{{- end -}}

{{/* A text as CEL: JSON's form, without the escapes for HTML. */}}
{{- define "ackd.celText" -}}
{{- mustToRawJson . -}}
{{- end -}}
