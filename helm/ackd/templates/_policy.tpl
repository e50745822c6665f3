{{/* Conditions and changes of the policies. What they say is what sidecar/ackd/inject/pod.py says. */}}

{{- define "ackd.policy.asks" -}}
has(object.metadata.annotations) && 'ackd.dev/inject' in object.metadata.annotations
&& object.metadata.annotations['ackd.dev/inject'] != 'false'
{{- end -}}

{{- define "ackd.policy.saysNothing" -}}
!has(object.metadata.annotations) || !('ackd.dev/inject' in object.metadata.annotations)
{{- end -}}

{{- define "ackd.policy.status" -}}
['ackd.dev/version', 'ackd.dev/config-hash']
{{- end -}}

{{- define "ackd.policy.patterns" -}}
{ {{- range $index, $name := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ printf "ackd.dev/%s" $name | quote }}: {{ include "ackd.celText" (printf "^(?:%s)$" (get $ $name).pattern) }}{{- end -}} }
{{- end -}}

{{- define "ackd.policy.words" -}}
{ {{- range $index, $name := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ printf "ackd.dev/%s" $name | quote }}: {{ include "ackd.celText" (get $ $name).words }}{{- end -}} }
{{- end -}}

{{- define "ackd.policy.injected" -}}
(has(object.metadata.annotations) && 'ackd.dev/config-hash' in object.metadata.annotations
&& has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == 'ackd'))
{{- end -}}

{{- define "ackd.policy.annotationsRight" -}}
(!has(object.metadata.annotations) || object.metadata.annotations.all(k,
!k.startsWith('ackd.dev/') || k in {{ include "ackd.policy.status" . }} || (k in {{ include "ackd.policy.patterns" . }}
&& object.metadata.annotations[k].matches({{ include "ackd.policy.patterns" . }}[k]))))
{{- end -}}

{{/* What a pod may not have beside a sidecar: name -> expression, sentence. */}}
{{- define "ackd.policy.clashes" -}}
host-network:
  expression: >-
    has(object.spec.hostNetwork) && object.spec.hostNetwork
  message: "hostNetwork is set: the sidecar's ports would be open to the whole node"
container:
  expression: >-
    object.spec.containers.exists(c, c.name == 'ackd')
    || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == 'ackd'))
  message: a container is named ackd, as the sidecar is
port:
  expression: >-
    object.spec.containers.exists(c, has(c.ports)
    && c.ports.exists(p, p.containerPort in [7080, 7081, 7082, 7083]))
    || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, has(c.ports)
    && c.ports.exists(p, p.containerPort in [7080, 7081, 7082, 7083])))
  message: a container has a port which is the sidecar's (7080, 7081, 7082, 7083)
volume:
  expression: >-
    has(object.spec.volumes) && object.spec.volumes.exists(v, v.name.startsWith('ackd-'))
  message: "a volume's name starts with ackd-: such names are the sidecar's"
{{- end -}}

{{- define "ackd.policy.pods" -}}
resourceRules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: Namespaced
{{- end -}}

{{/* The spec of a MutatingAdmissionPolicy: (dict "root" . "when" condition). */}}
{{- define "ackd.policy.mutating" -}}
{{- $settings := include "ackd.sidecar.settings" .root | fromJson -}}
failurePolicy: Fail
reinvocationPolicy: Never
matchConstraints:
  {{- include "ackd.policy.pods" . | nindent 2 }}
matchConditions:
  - name: wanted
    expression: {{ .when | quote }}
  - name: not-injected-yet
    expression: {{ printf "!%s" (include "ackd.policy.injected" .) | quote }}
  # What is wrong is refused, in words, by the validating policy.
  - name: annotations-right
    expression: {{ include "ackd.policy.annotationsRight" $settings.annotations | quote }}
  {{- range $name, $each := include "ackd.policy.clashes" . | fromYaml }}
  - name: no-{{ $name }}
    expression: {{ printf "!(%s)" $each.expression | quote }}
  {{- end }}
variables:
  - name: given
    expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
  {{- range $name, $each := $settings.annotations }}
  - name: {{ $name | replace "-" "_" }}
    expression: {{ printf "'ackd.dev/%s' in variables.given ? variables.given['ackd.dev/%s'] : %s" $name $name (include "ackd.celText" $each.default) | quote }}
  {{- end }}
  - name: containers
    expression: "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19].filter(i, i < object.spec.containers.size() && variables.app_env == 'true')"
  # What is empty says nothing: a team may have said it in its own ackd.toml.
  - name: env
    expression: >-
      {{ include "ackd.cel" $settings.container.env }}.filter(e, !("value" in e) || e["value"] != "")
  - name: container
    expression: >-
      {{ include "ackd.cel" (set (deepCopy $settings.container) "env" "<<env>>") }}
mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        has(object.spec.initContainers) && object.spec.initContainers.size() > 0
        ? [JSONPatch{op: "add", path: "/spec/initContainers/0", value: dyn(variables.container)}]
        : [JSONPatch{op: "add", path: "/spec/initContainers", value: dyn([dyn(variables.container)])}]
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        has(object.spec.volumes) && object.spec.volumes.size() > 0
        ? [{{ range $index, $each := $settings.volumes }}{{ if $index }}, {{ end }}JSONPatch{op: "add", path: "/spec/volumes/-", value: {{ include "ackd.cel" $each }}}{{ end }}]
        : [JSONPatch{op: "add", path: "/spec/volumes", value: {{ include "ackd.cel" $settings.volumes }}}]
  {{- include "ackd.policy.appended" (dict "key" "env" "identity" "name" "items" $settings.app_env) | nindent 2 }}
  {{- if $settings.app_mounts }}
  {{- include "ackd.policy.appended" (dict "key" "volumeMounts" "identity" "mountPath" "items" $settings.app_mounts) | nindent 2 }}
  {{- end }}
  {{- with $settings.pull_secrets }}
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        has(object.spec.imagePullSecrets) && object.spec.imagePullSecrets.size() > 0
        ? {{ toJson . }}.filter(name, !object.spec.imagePullSecrets.exists(e, has(e.name) && e.name == name))
        .map(name, JSONPatch{op: "add", path: "/spec/imagePullSecrets/-", value: dyn({"name": dyn(name)})})
        : [JSONPatch{op: "add", path: "/spec/imagePullSecrets", value: dyn({{ toJson . }}.map(name, dyn({"name": dyn(name)})))}]
  {{- end }}
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        (has(object.metadata.labels) ? [] : [JSONPatch{op: "add", path: "/metadata/labels", value: dyn({"ackd.dev/config": dyn(variables.config)})}])
        + [JSONPatch{op: "add", path: "/metadata/labels/ackd.dev~1config", value: dyn(variables.config)}]
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        (has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: dyn({"ackd.dev/version": dyn({{ include "ackd.celText" $settings.version }})})}])
        + [JSONPatch{op: "add", path: "/metadata/annotations/ackd.dev~1version", value: dyn({{ include "ackd.celText" $settings.version }})},
        JSONPatch{op: "add", path: "/metadata/annotations/ackd.dev~1config-hash", value: dyn({{ include "ackd.policy.hash" .root }})}]
{{- end -}}

{{/* Of the sidecar, and of its ackd.toml where that is the chart's: an expression. */}}
{{- define "ackd.policy.hash" -}}
{{- $hash := include "ackd.sidecar.hash" . -}}
{{- with include "ackd.config.hash" . -}}
(variables.config == {{ include "ackd.celText" $.Values.sidecar.configMap }} ? {{ include "ackd.celText" (printf "%s-%s" $hash .) }} : {{ include "ackd.celText" $hash }})
{{- else -}}
{{ include "ackd.celText" $hash }}
{{- end -}}
{{- end -}}

{{/* Items for a list of each application container, where it does not have them: a container
without the list gets it whole, the others one by one. */}}
{{- define "ackd.policy.appended" -}}
- patchType: JSONPatch
  jsonPatch:
    expression: >-
      variables.containers.filter(i, !has(object.spec.containers[i].{{ .key }}) || object.spec.containers[i].{{ .key }}.size() == 0)
      .map(i, JSONPatch{op: "add", path: "/spec/containers/" + string(i) + "/{{ .key }}", value: {{ include "ackd.cel" .items }}})
{{- range .items }}
- patchType: JSONPatch
  jsonPatch:
    expression: >-
      variables.containers.filter(i, !object.spec.containers[i].{{ $.key }}.exists(e, e.{{ $.identity }} == {{ include "ackd.celText" (get . $.identity) }}))
      .map(i, JSONPatch{op: "add", path: "/spec/containers/" + string(i) + "/{{ $.key }}/-", value: {{ include "ackd.cel" . }}})
{{- end }}
{{- end -}}

{{/* The spec of a ValidatingAdmissionPolicy, as above. */}}
{{- define "ackd.policy.validating" -}}
{{- $settings := include "ackd.sidecar.settings" .root | fromJson -}}
failurePolicy: Fail
matchConstraints:
  {{- include "ackd.policy.pods" . | nindent 2 }}
matchConditions:
  - name: wanted
    expression: {{ .when | quote }}
variables:
  - name: given
    expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
  - name: patterns
    expression: {{ include "ackd.policy.patterns" $settings.annotations | quote }}
  - name: words
    expression: {{ include "ackd.policy.words" $settings.annotations | quote }}
  - name: unknown
    expression: "variables.given.filter(k, k.startsWith('ackd.dev/') && !(k in {{ include "ackd.policy.status" . }}) && !(k in variables.patterns))"
  - name: wrong
    expression: "variables.patterns.filter(k, k in variables.given && !variables.given[k].matches(variables.patterns[k]))"
  - name: injected
    expression: {{ include "ackd.policy.injected" . | quote }}
validations:
  - expression: "variables.unknown.size() == 0"
    messageExpression: "variables.unknown.map(k, k + ' is no annotation of ackd; there are: {{ keys $settings.annotations | sortAlpha | join ", " }}').join('; ')"
    reason: Forbidden
  - expression: "variables.wrong.size() == 0"
    messageExpression: {{ `variables.wrong.map(k, k + " is '" + variables.given[k] + "' and must be " + variables.words[k]).join('; ')` | quote }}
    reason: Forbidden
  {{- range $name, $each := include "ackd.policy.clashes" . | fromYaml }}
  - expression: {{ printf "variables.injected || !(%s)" $each.expression | quote }}
    message: {{ $each.message | quote }}
    reason: Forbidden
  {{- end }}
  # Last, as each of the others says more. The policy that injects is in force a moment after it is
  # made: who makes a pod before makes it again, as controllers do.
  - expression: "variables.injected"
    message: "the pod asks for a sidecar and has none: the policy that puts it in is not in force; try again"
    reason: Forbidden
{{- end -}}
