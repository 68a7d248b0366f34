#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_deploy.sh - Dockerfiles, manifests and the Helm chart: form, and the schemas of Kubernetes' own
# kinds. Needs no cluster and no container engine.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
bin=$(tools/venv.sh deploy)/bin
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
"$bin/hadolint" deploy/docker/Dockerfile
"$bin/yamllint" -s -d '{extends: default, rules: {line-length: {max: 120}, document-start: disable,
    braces: {max-spaces-inside: 1}, comments-indentation: disable}}' deploy/docker deploy/kubernetes \
    deploy/helm/horovod/Chart.yaml deploy/helm/horovod/values.yaml
"$bin/python" tools/check_chart.py "$rendered"
# MPIJob and JobSet are kinds of operators, whose schemas are not in the package.
"$bin/kubernetes-validate" --strict --quiet deploy/kubernetes/indexed_job.yaml \
    deploy/kubernetes/elastic.yaml "$rendered"/*.yaml
