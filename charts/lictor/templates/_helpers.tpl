{{/* The name of the objects in the namespace. */}}
{{- define "lictor.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-wide objects: each release has its own. */}}
{{- define "lictor.clusterName" -}}
{{- printf "%s.%s" (include "lictor.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "lictor.serviceAccountName" -}}
{{- default (ternary (include "lictor.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "lictor.selectorLabels" -}}
app.kubernetes.io/name: lictor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lictor.labels" -}}
{{ include "lictor.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "lictor.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The operator's own Lease, as the program names it. */}}
{{- define "lictor.lease" -}}
{{- .Values.controller | replace "/" "-" -}}
{{- end -}}

{{/* The arguments of all subcommands that use a cluster. */}}
{{- define "lictor.scope" -}}
- --controller={{ .Values.controller }}
- --lease-namespace={{ .Release.Namespace }}
{{- with .Values.namespaces }}
- --namespaces={{ join "," . }}
{{- end }}
{{- end -}}

{{/* "true" or "": a switch that is null is true in a cluster-wide installation. */}}
{{- define "lictor.policiesOperator" -}}
{{- if kindIs "bool" .Values.policies.operator -}}
{{- if .Values.policies.operator -}}true{{- end -}}
{{- else if not .Values.namespaces -}}true{{- end -}}
{{- end -}}

{{- define "lictor.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "lictor.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A pod that runs one subcommand until it ends: (dict "root" $ "name" … "account" … "args" …). */}}
{{- define "lictor.oneOff" -}}
serviceAccountName: {{ .account }}
restartPolicy: Never
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  {{- include "lictor.podSecurityContext" .root | nindent 2 }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
containers:
- name: {{ .name }}
  image: {{ include "lictor.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
  {{- .args | nindent 2 }}
  {{- with .root.Values.extraEnv }}
  env: {{ toJson . }}
  {{- end }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 256Mi}
  securityContext:
    {{- include "lictor.securityContext" .root | nindent 4 }}
{{- end -}}

{{/*
Whether hooks are rendered: only by Helm itself, which talks to an API server. What `helm template` prints is for `kubectl apply` and
the like, for which a hook is an object as any other: the withdrawal would begin at once. Every API server has this API, and `helm
template` does not name it by itself. Argo CD does name it, and skips hooks by their annotation.
*/}}
{{- define "lictor.hooks" -}}
{{- if .Capabilities.APIVersions.Has "apiregistration.k8s.io/v1" }}true{{ end -}}
{{- end -}}

{{/* The rights on workloads: docs/workloads.md. */}}
{{- define "lictor.workloadRules" -}}
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [batch]
  resources: [cronjobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, patch{{ if .Values.workloads.jobs }}, create, delete{{ end }}]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, patch]
{{- end -}}

{{/* The rights on objects in the served namespaces: docs/operating.md. */}}
{{- define "lictor.namespaceRules" -}}
- apiGroups: [lictor.dev]
  resources: [leaderelections]
  verbs: [get, list, watch, patch]
- apiGroups: [lictor.dev]
  resources: [leaderelections/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* The Secrets that the operator may read, as JSON: {"NAMESPACE": ["NAME", …]}. */}}
{{- define "lictor.secrets" -}}
{{- $own := .Release.Namespace -}}
{{- $wanted := .Values.secrets -}}
{{- range .Values.classes -}}
{{- $consul := default dict .spec.consul -}}
{{- $tls := default dict $consul.tls -}}
{{- range list $consul.tokenSecretRef $tls.caSecretRef $tls.certSecretRef -}}
{{- if . -}}{{- $wanted = append $wanted . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $all := dict -}}
{{- range $wanted -}}
{{- $namespace := default $own .namespace -}}
{{- $_ := set $all $namespace (append (default list (get $all $namespace)) .name | uniq) -}}
{{- end -}}
{{- range $namespace, $names := $all -}}
{{- $_ := set $all $namespace (sortAlpha $names) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* "true" if an object is not of this release: (dict "root" $ "object" …). */}}
{{- define "lictor.foreign" -}}
{{- $annotations := default dict .object.metadata.annotations -}}
{{- if or (ne (default "" (get $annotations "meta.helm.sh/release-name")) .root.Release.Name) (ne (default "" (get $annotations "meta.helm.sh/release-namespace")) .root.Release.Namespace) -}}true{{- end -}}
{{- end -}}

{{/* The operator's user name at the API server. */}}
{{- define "lictor.user" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "lictor.serviceAccountName" .) -}}
{{- end -}}
