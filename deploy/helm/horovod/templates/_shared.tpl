{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* The release's name: short enough for pods' host names, which get an index appended. */}}
{{- define "horovod.name" -}}
{{ .Release.Name | trunc 45 | trimSuffix "-" }}
{{- end }}

{{- define "horovod.labels" -}}
app.kubernetes.io/name: horovod
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "horovod.podSecurity" -}}
securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000}
automountServiceAccountToken: false
{{- end }}

{{/* Where pods that run ranks are placed. */}}
{{- define "horovod.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "horovod.image" -}}
image: {{ .Values.image }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
{{- end }}

{{- define "horovod.mounts" -}}
- {name: shm, mountPath: /dev/shm}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "horovod.volumes" -}}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.sharedMemory }}}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
