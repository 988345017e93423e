{{- /* SPDX-License-Identifier: GPL-2.0-or-later */ -}}

{{- /* Labels of an object: (dict "root" $ "component" NAME). */ -}}
{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The labels that select pods, and all that pod templates carry: an upgrade of the chart alone restarts nothing. */ -}}
{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- /* Image reference and pull policy: (dict "root" $ "image" controller|node|bridge). */ -}}
{{- define "tidegate.image" -}}
{{- $v := .root.Values.image -}}
{{- $name := get $v .image -}}
image: {{ if contains "/" $name }}{{ $name }}{{ else -}}
{{ printf "%s/%s:%s" (trimSuffix "/" $v.registry) $name ($v.tag | default .root.Chart.AppVersion) }}{{ end }}
imagePullPolicy: {{ $v.pullPolicy }}
{{- end -}}

{{- define "tidegate.mungeSecret" -}}
{{ .Values.munge.existingSecret | default (printf "%s-munge" .Release.Name) }}
{{- end -}}

{{- define "tidegate.stateClaim" -}}
{{ .Values.controller.storage.existingClaim | default (printf "%s-controller-state" .Release.Name) }}
{{- end -}}

{{- /* Addresses as every pod's environment has them: nothing of ours asks a DNS server. */ -}}
{{- define "tidegate.addresses" -}}
{{- $prefix := .Release.Name | upper | replace "-" "_" -}}
- {name: SLURMCTLD_IP, value: "$({{ $prefix }}_CONTROLLER_SERVICE_HOST)"}
- {name: TIDEGATE_BRIDGE_URL, value: "http://$({{ $prefix }}_BRIDGE_SERVICE_HOST):8080"}
{{- end -}}

{{- /* Where agents find the bridge. Without one nobody would resume a node that waits for its checks: no address then. */ -}}
{{- define "tidegate.agents" -}}
{{- if .Values.bridge.replicas -}}
$({{ .Release.Name | upper | replace "-" "_" }}_BRIDGE_SERVICE_HOST):6821
{{- end -}}
{{- end -}}

{{- /* The pools with their defaults filled in, as a JSON array; checks and reserve are merged key by key. */ -}}
{{- define "tidegate.pools" -}}
{{- $pools := list -}}
{{- range .Values.pools -}}
{{-   $pool := deepCopy $.Values.poolDefaults -}}
{{- /* Helm itself takes a null out only where the chart has such a check. */ -}}
{{-   $_ := set $pool "checks" (include "tidegate.mergeChecks" (list dict $pool.checks) | fromJson) -}}
{{-   range $key, $value := . -}}
{{-     if and (eq $key "reserve") $value }}{{ $value = mergeOverwrite $pool.reserve $value }}{{ end -}}
{{-     if eq $key "checks" }}{{ $value = include "tidegate.mergeChecks" (list $pool.checks $value) | fromJson }}{{ end -}}
{{-     $_ := set $pool $key $value -}}
{{-   end -}}
{{-   if not $pool.nodeSelector }}{{ $_ := set $pool "nodeSelector" (dict "tidegate.dev/pool" .name) }}{{ end -}}
{{-   if not $pool.partition }}{{ $_ := set $pool "partition" .name }}{{ end -}}
{{-   $pools = append $pools $pool -}}
{{- end -}}
{{ toJson $pools }}
{{- end -}}

{{- /* (list CHECKS CHECKS): the second over the first, as JSON; null switches a check off. */ -}}
{{- define "tidegate.mergeChecks" -}}
{{- $all := deepCopy (index . 0) -}}
{{- range $name, $check := index . 1 | default dict -}}
{{-   if kindIs "invalid" $check -}}
{{-     $all = omit $all $name -}}
{{-   else -}}
{{-     $old := get $all $name | default dict -}}
{{-     range $key, $value := $check }}{{ $_ := set $old $key $value }}{{ end -}}
{{-     $_ := set $all $name $old -}}
{{-   end -}}
{{- end -}}
{{ toJson $all }}
{{- end -}}

{{- /* A pool's checks as the agent reads them. */ -}}
{{- define "tidegate.checks" -}}
{{- $checks := list -}}
{{- range $name, $check := .checks -}}
{{-   if $check }}{{ $checks = append $checks (merge (dict "name" $name) $check) }}{{ end -}}
{{- end -}}
{{ dict "checks" $checks | toPrettyJson }}
{{- end -}}

{{- /* The user of the login pods as JSON: name, uid, gid, home. */ -}}
{{- define "tidegate.loginUser" -}}
{{- $login := .Values.login -}}
{{- $user := dict "name" $login.user -}}
{{- range .Values.users }}{{ if eq .name $login.user }}{{ $user = deepCopy . }}{{ end }}{{ end -}}
{{- if $login.uid }}{{ $_ := set $user "uid" $login.uid }}{{ end -}}
{{- if $login.gid }}{{ $_ := set $user "gid" $login.gid }}{{ end -}}
{{- $_ := set $user "home" ($user.home | default $login.home | default (printf "/home/%s" $login.user)) -}}
{{ toJson $user }}
{{- end -}}

{{- /* Pod and container under Pod Security 'restricted'. */ -}}
{{- define "tidegate.restrictedPod" -}}
runAsNonRoot: true
runAsUser: {{ .uid }}
runAsGroup: {{ .gid }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "tidegate.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* What controller, login and bridge pods share: key and configuration made ready by an init container, and munged
       beside the program. (dict "root" $ "image" IMAGE "munge" true where munged has a uid of its own) */ -}}
{{- define "tidegate.init" -}}
- name: init
  {{- include "tidegate.image" . | nindent 2 }}
  args: [init]
  env:
    {{- include "tidegate.addresses" .root | nindent 4 }}
  {{- with .root.Values.sidecars.resources }}
  resources: {{ toJson . }}
  {{- end }}
  securityContext:
    {{- include "tidegate.sidecarSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: munge-secret, mountPath: /run/secrets/munge, readOnly: true}
    - {name: munge-key, mountPath: /run/munge-key}
    - {name: munge-dir, mountPath: /run/munge-dir}
    - {name: slurm-in, mountPath: /etc/slurm-in, readOnly: true}
    - {name: slurm, mountPath: /etc/slurm}
{{- end -}}

{{- define "tidegate.munged" -}}
- name: munged
  {{- include "tidegate.image" . | nindent 2 }}
  args: [munged]
  {{- with .root.Values.sidecars.resources }}
  resources: {{ toJson . }}
  {{- end }}
  livenessProbe:
    exec: {command: [munge, --no-input, --output=/dev/null]}
    periodSeconds: 60
    timeoutSeconds: 10
    failureThreshold: 5
  securityContext:
    {{- include "tidegate.sidecarSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: munge-key, mountPath: /run/munge-key, readOnly: true}
    - {name: munge-dir, mountPath: /run/munge, subPath: munge}
{{- end -}}

{{- define "tidegate.sidecarSecurity" -}}
{{- if .munge -}}
runAsUser: 64031
runAsGroup: 64031
{{ end -}}
{{ include "tidegate.restricted" . }}
{{- end -}}

{{- define "tidegate.mounts" -}}
- {name: munge-dir, mountPath: /run/munge, subPath: munge, readOnly: true}
- {name: slurm, mountPath: /etc/slurm, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- /* The init container alone mounts the Secret, so its mode may let that container's uid read it. The key's
       volume is in memory, which also makes it sticky: munged refuses a key in a directory open to others. */ -}}
{{- define "tidegate.volumes" -}}
- {name: munge-secret, secret: {secretName: {{ include "tidegate.mungeSecret" . }}, defaultMode: 0444}}
- {name: munge-key, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: munge-dir, emptyDir: {sizeLimit: 1Mi}}
- {name: slurm-in, configMap: {name: {{ .Release.Name }}-slurm}}
- {name: slurm, emptyDir: {sizeLimit: 16Mi}}
- {name: tmp, emptyDir: {}}
{{- end -}}

{{- /* Users, mounted as a directory so that a change arrives without a restart: (dict "root" $ "hosts" controller|node) */ -}}
{{- define "tidegate.userMounts" -}}
- {name: users, mountPath: /var/lib/extrausers, readOnly: true}
{{- if .root.Values.nsswitch }}
- {name: nsswitch, mountPath: /etc/nsswitch.conf, subPath: {{ .hosts }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tidegate.userVolumes" -}}
- {name: users, configMap: {name: {{ .Release.Name }}-users}}
{{- if .Values.nsswitch }}
- {name: nsswitch, configMap: {name: {{ .Release.Name }}-nsswitch}}
{{- end }}
{{- end -}}

{{- define "tidegate.homeVolumes" -}}
- name: home
  {{- toYaml (.Values.home.volume | default (dict "emptyDir" (dict))) | nindent 2 }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidegate.homeMounts" -}}
- {name: home, mountPath: /home}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Whose pod it is and where it may run: (dict "root" $ "component" NAME "of" VALUES). */ -}}
{{- define "tidegate.pod" -}}
serviceAccountName: {{ .root.Release.Name }}-{{ .component }}
# The addresses of our Services come by these.
enableServiceLinks: true
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with get $.of $key }}
{{ $key }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}
