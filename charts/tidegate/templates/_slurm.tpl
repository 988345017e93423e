{{- /* SPDX-License-Identifier: GPL-2.0-or-later */ -}}

{{- /* What clients read of slurm.conf too: a change of this part restarts login and bridge, a new pool does not. */ -}}
{{- define "tidegate.slurmBase" -}}
{{- $s := .Values.slurm -}}
{{- $pools := include "tidegate.pools" . | fromJsonArray -}}
{{- $cgroup := eq "cgroup" (index $pools 0).confinement -}}
{{- $gres := false -}}
{{- range $pools }}{{ if .gres }}{{ $gres = true }}{{ end }}{{ end -}}
ClusterName={{ $s.clusterName }}
SlurmctldHost={{ .Release.Name }}-controller(@SLURMCTLD_IP@)
SlurmctldParameters={{ prepend $s.slurmctldParameters "enable_configless" | join "," }}
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
StateSaveLocation=/var/spool/slurmctld
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
SlurmdTimeout={{ int64 $s.slurmdTimeout }}
SlurmUser=slurm
# Nobody reads mail here; the default is a program that is not there.
MailProg=/bin/true
AuthType=auth/munge
AuthInfo=cred_expire={{ int64 $s.credExpire }}
MaxNodeCount={{ int64 $s.maxNodeCount }}
# A node that somebody set DOWN stays down; the bridge resumes what crashed.
ReturnToService=1
ProctrackType={{ ternary "proctrack/cgroup" "proctrack/linuxproc" $cgroup }}
TaskPlugin={{ ternary "task/cgroup,task/affinity" "task/none" $cgroup }}
JobAcctGatherType={{ ternary "jobacct_gather/cgroup" "jobacct_gather/linux" $cgroup }}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
LaunchParameters=enable_nss_slurm
# By files of the node image: they ask the agent of the node, then run the site's own. No PrologFlags: with Alloc a slurmd
# that was killed and started again fails each new step of the jobs that it runs, and drains its node.
Prolog=/usr/libexec/tidegate/prolog
Epilog=/usr/libexec/tidegate/epilog
PrologEpilogTimeout={{ int64 $s.prologEpilogTimeout }}
SchedulerParameters={{ prepend $s.schedulerParameters "nohold_on_prolog_fail" | join "," }}
# Locked memory (RDMA) is limited by the node's pod, not by the shell that a job is submitted from.
PropagateResourceLimitsExcept=MEMLOCK
{{- if $gres }}
GresTypes=gpu
{{- end }}
{{- with $s.defMemPerCPU }}
DefMemPerCPU={{ int64 . }}
{{- end }}
{{- with $s.extraConf }}
{{ trim . }}
{{- end }}
{{- end -}}

{{- define "tidegate.slurmPools" -}}
{{- $pools := include "tidegate.pools" . | fromJsonArray -}}
{{- $default := (index $pools 0).name -}}
{{- range $pools -}}
{{-   range $key, $_ := .partitionOptions }}{{ if eq (lower $key) "default" }}{{ $default = "" }}{{ end }}{{ end -}}
{{- end -}}
{{- range $pools }}
NodeSet={{ .name }} Feature={{ .name }}
PartitionName={{ .partition }} Nodes={{ .name }}
{{-   if eq .name $default }} Default=YES{{ end }}
{{-   range $key, $value := .partitionOptions }} {{ $key }}=
{{-     if kindIs "bool" $value }}{{ ternary "YES" "NO" $value }}
{{-     else if kindIs "float64" $value }}{{ int64 $value }}
{{-     else }}{{ $value }}{{ end }}
{{-   end }}
{{- end }}
{{- end -}}

{{- define "tidegate.cgroupConf" -}}
{{- if eq "cgroup" (index (include "tidegate.pools" . | fromJsonArray) 0).confinement -}}
CgroupPlugin=cgroup/v2
IgnoreSystemd=yes
ConstrainCores=yes
ConstrainRAMSpace=yes
{{- else -}}
CgroupPlugin=disabled
{{- end }}
{{- with .Values.slurm.extraCgroupConf }}
{{ trim . }}
{{- end }}
{{- end -}}

{{- /* Slurm's files, as the ConfigMap's data; also what the restart of slurmctld hangs on. */ -}}
{{- define "tidegate.slurmData" -}}
slurm.conf: |
  {{- include "tidegate.slurmBase" . | nindent 2 }}
  {{- include "tidegate.slurmPools" . | trim | nindent 2 }}
cgroup.conf: |
  {{- include "tidegate.cgroupConf" . | nindent 2 }}
gres.conf: |
  # Generic resources of the nodes, from the value slurm.gresConf.
  {{- with .Values.slurm.gresConf }}
  {{- trim . | nindent 2 }}
  {{- end }}
mpi.conf: |
  {{- .Files.Get "files/mpi.conf" | trim | nindent 2 }}
{{- end -}}

{{- /* passwd, group and shadow. A user has a group of the same name unless a group in `groups` has that gid. */ -}}
{{- define "tidegate.userData" -}}
{{- $groups := dict -}}
{{- $members := dict -}}
{{- range .Values.groups }}{{ $_ := set $groups (toString (int64 .gid)) .name }}{{ end -}}
{{- range $user := .Values.users -}}
{{-   $gid := toString (int64 .gid) -}}
{{-   if not (hasKey $groups $gid) }}{{ $_ := set $groups $gid .name }}{{ end -}}
{{-   range $user.groups }}{{ $_ := set $members . (append (get $members . | default list) $user.name) }}{{ end -}}
{{- end -}}
passwd: |
  {{- range .Values.users }}
  {{ printf "%s:x:%d:%d:%s:%s:%s" .name (int64 .uid) (int64 .gid) (.gecos | default "")
       (.home | default (printf "/home/%s" .name)) (.shell | default "/bin/bash") }}
  {{- end }}
group: |
  {{- range $gid, $name := $groups }}
  {{ printf "%s:x:%s:%s" $name $gid (get $members $name | default list | join ",") }}
  {{- end }}
shadow: |
  {{- range .Values.users }}
  {{ .name }}:*:20000::::::
  {{- end }}
{{- end -}}
