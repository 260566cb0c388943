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

{{/* The beginning of the names of roles for people: lictor, if the release and its namespace have that name. */}}
{{- define "lictor.peopleName" -}}
{{- ternary (include "lictor.fullname" .) (include "lictor.clusterName" .) (eq (include "lictor.fullname" .) .Release.Namespace) -}}
{{- end -}}

{{- define "lictor.serviceAccountName" -}}
{{- default (ternary (include "lictor.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "lictor.selectorLabels" -}}
app.kubernetes.io/name: lictor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels and annotations of an object: (dict "root" $ "labels" {…} "annotations" {…}). What is given wins over the common ones. */}}
{{- define "lictor.metadata" -}}
{{- $own := dict
  "app.kubernetes.io/name" "lictor"
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_"))
-}}
labels:
  {{- merge (dict) (default dict .labels) $own .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The same of an object that Helm creates at "hook" only, in the order of "weight". A Job that failed stays, with its log. */}}
{{- define "lictor.hookMetadata" -}}
{{- $annotations := dict "helm.sh/hook" .hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" "argocd.argoproj.io/hook" "Skip" -}}
{{- with .weight }}{{ $_ := set $annotations "helm.sh/hook-weight" . }}{{ end -}}
{{- include "lictor.metadata" (dict "root" .root "labels" .labels "annotations" (merge $annotations (default dict .annotations))) -}}
{{- end -}}

{{/* The image. As for Docker, what has a dot or a colon before the first slash is a registry's host. */}}
{{- define "lictor.image" -}}
{{- $parts := splitList "/" .Values.image.repository -}}
{{- with .Values.global.imageRegistry -}}
{{- if and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) -}}{{- $parts = rest $parts -}}{{- end -}}
{{- $parts = prepend $parts (trimSuffix "/" .) -}}
{{- end -}}
{{- $repository := join "/" $parts -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
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

{{/* What all pods of this release have in common. */}}
{{- define "lictor.pod" -}}
{{- $secrets := list -}}
{{- range concat .Values.imagePullSecrets .Values.global.imagePullSecrets -}}
{{- $secrets = append $secrets (ternary . (dict "name" .) (kindIs "map" .)) -}}
{{- end -}}
automountServiceAccountToken: true
{{- with uniq $secrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{ toJson . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{ toJson . }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- $volumes := .Values.extraVolumes -}}
{{- with .Values.consulLogin.audience -}}
{{- $token := dict "serviceAccountToken" (dict "audience" . "expirationSeconds" 3600 "path" "token") -}}
{{- $volumes = append $volumes (dict "name" "consul-login" "projected" (dict "sources" (list $token))) -}}
{{- end -}}
{{- with $volumes }}
volumes: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* What all their containers have in common. */}}
{{- define "lictor.container" -}}
image: {{ include "lictor.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- $mounts := .Values.extraVolumeMounts -}}
{{- if .Values.consulLogin.audience -}}
{{- $mounts = append $mounts (dict "name" "consul-login" "mountPath" "/var/run/secrets/lictor.dev/consul" "readOnly" true) -}}
{{- end -}}
{{- with $mounts }}
volumeMounts: {{ toJson . }}
{{- end }}
{{- with .Values.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod that runs one subcommand until it ends: (dict "root" $ "name" …). */}}
{{- define "lictor.oneOffMetadata" -}}
{{- $labels := dict "app.kubernetes.io/name" (printf "lictor-%s" .name) -}}
{{- include "lictor.metadata" (dict "root" .root "labels" (merge $labels .root.Values.hooks.podLabels) "annotations" .root.Values.hooks.podAnnotations) -}}
{{- end -}}

{{/* Its spec: (dict "root" $ "name" … "account" … "args" …). */}}
{{- define "lictor.oneOff" -}}
serviceAccountName: {{ .account }}
restartPolicy: Never
{{- include "lictor.pod" .root | trim | nindent 0 }}
containers:
- name: {{ .name }}
  {{- include "lictor.container" .root | nindent 2 }}
  args:
  {{- .args | nindent 2 }}
  {{- with .root.Values.extraEnv }}
  env: {{ toJson . }}
  {{- end }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 256Mi}
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

{{/* The rights to delete former leaders: docs/former-leader.md. */}}
{{- define "lictor.fencingRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end -}}

{{/* The rights on Services and their slices: docs/routing.md. OpenShift asks for the last one where addresses of pods are written. */}}
{{- define "lictor.routingRules" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [endpoints]
  verbs: [get]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices/restricted]
  verbs: [create]
{{- end -}}

{{/* The rights on objects in the served namespaces: docs/operating.md. */}}
{{- define "lictor.namespaceRules" -}}
- apiGroups: [lictor.dev]
  resources: [leaderelections]
  verbs: [get, list, watch, patch]
- apiGroups: [lictor.dev]
  resources: [leaderelections/status]
  verbs: [patch]
- apiGroups: [lictor.dev]
  resources: [switchovers]
  verbs: [list, watch, delete]
- apiGroups: [lictor.dev]
  resources: [switchovers/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [apps]
  resources: [daemonsets, replicasets, statefulsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
- apiGroups: [""]
  resources: [replicationcontrollers]
  verbs: [get]
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
{{- $bucket := default dict .spec.bucket -}}
{{- $hub := default dict .spec.hub -}}
{{- range list $consul.tokenSecretRef $tls.caSecretRef $tls.certSecretRef $bucket.secretRef $hub.kubeconfigSecretRef -}}
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

{{/* A duration like 500ms, 30s or 2m as a number. */}}
{{- define "lictor.milliseconds" -}}
{{- mul (regexFind "^[0-9]+" . | int) (get (dict "ms" 1 "s" 1000 "m" 60000) (regexFind "[a-z]+$" .)) -}}
{{- end -}}
