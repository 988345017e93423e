{{- /* SPDX-License-Identifier: GPL-2.0-or-later */ -}}

{{- /* What the schema cannot say: how values must fit each other. Renders nothing, or fails with a sentence. */ -}}
{{- define "tidegate.validate" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{-   fail (printf "release name %q: it names Services, so it must begin with a letter and hold only a-z, 0-9 and '-'; choose another" .Release.Name) -}}
{{- end -}}
{{- if gt (len .Release.Name) 52 -}}
{{-   fail (printf "release name %q has %d characters: at most 52 leave room for '-controller' in a host name; choose a shorter one" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- include "tidegate.validatePools" . -}}
{{- include "tidegate.validateUsers" . -}}
{{- end -}}

{{- define "tidegate.validatePools" -}}
{{- $seen := list -}}
{{- range $pool := include "tidegate.pools" . | fromJsonArray -}}
{{-   range $other := $seen -}}
{{-     if eq $pool.name $other.name -}}
{{-       fail (printf "pools: two pools are named %q; a name stands for one pool: rename one" $pool.name) -}}
{{-     end -}}
{{-     if eq (lower $pool.partition) (lower $other.partition) -}}
{{-       fail (printf "pools: %q and %q both have the partition %q; each pool needs its own: set partition in one" $other.name $pool.name $pool.partition) -}}
{{-     end -}}
{{-     if ne $pool.confinement $other.confinement -}}
{{-       fail (printf "pools: %q has confinement %q and %q has %q; slurm.conf has one answer for the whole cluster: give all pools the same" $other.name $other.confinement $pool.name $pool.confinement) -}}
{{-     end -}}
{{-     include "tidegate.validateApart" (dict "wide" $pool "narrow" $other) -}}
{{-     include "tidegate.validateApart" (dict "wide" $other "narrow" $pool) -}}
{{-   end -}}
{{-   range $key, $_ := $pool.partitionOptions -}}
{{-     if has (lower $key) (list "partitionname" "nodes") -}}
{{-       fail (printf "pools: %q sets partitionOptions.%s, which the chart sets itself: remove it" $pool.name $key) -}}
{{-     end -}}
{{-   end -}}
{{-   if and $pool.gres (not (trim $.Values.slurm.gresConf)) -}}
{{-     fail (printf "pools: %q has gres true, but slurm.gresConf is empty: Slurm takes GPUs without a device file for lost and drains the node; set it, for example to AutoDetect=nvidia" $pool.name) -}}
{{-   end -}}
{{-   include "tidegate.validateChecks" $pool -}}
{{-   $seen = append $seen $pool -}}
{{- end -}}
{{- end -}}

{{- /* What would else be said by the agent of each node, when it reads them. */ -}}
{{- define "tidegate.validateChecks" -}}
{{- if gt (len .checks) 64 -}}
{{-   fail (printf "pools: %q has %d checks, expected at most 64: switch some off" .name (len .checks)) -}}
{{- end -}}
{{- range $name, $check := .checks -}}
{{-   $what := printf "pools: the check %q of %q" $name $.name -}}
{{-   if not $check.command -}}
{{-     fail (printf "%s has no command: give it one, or null to switch it off" $what) -}}
{{-   end -}}
{{-   $fail := $check.fail | default (dict "times" 2 "of" 3) -}}
{{-   $times := int64 ($fail.times | default 2) -}}
{{-   $of := int64 ($fail.of | default $times) -}}
{{-   if gt $times $of -}}
{{-     fail (printf "%s fails %d times of %d, which can not be: fail.times must be at most fail.of" $what $times $of) -}}
{{-   end -}}
{{-   $moments := $check.moments | default list -}}
{{-   if and (or (has "prolog" $moments) (has "epilog" $moments)) (gt (int64 ($check.deadline | default 8)) 8) -}}
{{-     fail (printf "%s has a deadline of %d s, but jobs wait for a check of prolog or epilog: at most 8" $what (int64 $check.deadline)) -}}
{{-   end -}}
{{-   $command := first $check.command | default "" -}}
{{-   $script := trimPrefix "/etc/tidegate/check-scripts/" $command -}}
{{-   if and (ne $script $command) (not (hasKey $.checkScripts $script)) -}}
{{-     fail (printf "%s runs %s, but checkScripts has no %q: add it there" $what $command $script) -}}
{{-   end -}}
{{- end -}}
{{- end -}}

{{- /* Fails if all that `wide` asks of a node is asked by `narrow` too. */ -}}
{{- define "tidegate.validateApart" -}}
{{- $apart := false -}}
{{- range $key, $value := .wide.nodeSelector -}}
{{-   if ne (get $.narrow.nodeSelector $key | default "") $value }}{{ $apart = true }}{{ end -}}
{{- end -}}
{{- if not $apart -}}
{{-   fail (printf "pools: every node of %q %s is selected by %q %s as well; a node belongs to one pool: change one nodeSelector"
        .narrow.name (toJson .narrow.nodeSelector) .wide.name (toJson .wide.nodeSelector)) -}}
{{- end -}}
{{- end -}}

{{- define "tidegate.validateUsers" -}}
{{- $names := dict -}}
{{- $uids := dict -}}
{{- $groups := dict -}}
{{- range .Values.groups -}}
{{-   if hasKey $groups .name }}{{ fail (printf "groups: %q is there twice: remove one" .name) }}{{ end -}}
{{-   $_ := set $groups .name (int64 .gid) -}}
{{- end -}}
{{- range $user := .Values.users -}}
{{-   $uid := toString (int64 .uid) -}}
{{-   if hasKey $names .name }}{{ fail (printf "users: %q is there twice: remove one" .name) }}{{ end -}}
{{-   if hasKey $uids $uid -}}
{{-     fail (printf "users: %q and %q both have the uid %s: change one" (get $uids $uid) .name $uid) -}}
{{-   end -}}
{{-   if or (has $uid (list "64030" "64031")) (has .name (list "slurm" "munge")) -}}
{{-     fail (printf "users: %q (uid %s): slurm (64030) and munge (64031) belong to Slurm's own daemons; choose another" .name $uid) -}}
{{-   end -}}
{{-   if and (hasKey $groups .name) (ne (get $groups .name) (int64 .gid)) -}}
{{-     fail (printf "users: %q has the gid %d, but groups gives the group of that name %d: make them equal" .name (int64 .gid) (get $groups .name)) -}}
{{-   end -}}
{{-   range .groups -}}
{{-     if not (hasKey $groups .) -}}
{{-       fail (printf "users: %q is to be in the group %q, which is not in groups: add it there" $user.name .) -}}
{{-     end -}}
{{-   end -}}
{{-   $_ := set $names .name true -}}
{{-   $_ := set $uids $uid .name -}}
{{- end -}}
{{- $user := include "tidegate.loginUser" . | fromJson -}}
{{- if not (and $user.uid $user.gid) -}}
{{-   fail (printf "login.user is %q, who is not in users: add that user, or set login.uid and login.gid" $user.name) -}}
{{- end -}}
{{- end -}}
