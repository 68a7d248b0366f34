#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the Helm chart: lint it, render it, compare it with the manifests, try wrong values.

    check_chart.py FOLDER     render into FOLDER; the caller validates the files there

Helm is the one of tools/requirements/deploy.txt, next to this Python. It needs no cluster.
"""

import subprocess
import sys
from pathlib import Path

import yaml

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
CHART = DEPLOY / "helm" / "horovod"
HELM = Path(sys.executable).parent / "helm"
MANY = (
    *("volumes[0].name=data,volumes[0].emptyDir.medium=Memory", "nodeSelector.kind=cpu"),
    *("volumeMounts[0].name=data,volumeMounts[0].mountPath=/data", "tolerations[0].key=training"),
    *("env[0].name=OMP_NUM_THREADS,env[0].value=one", "resources.limits.cpu=2"),
)
RENDERED = {
    "static": [],
    "static_many": ["ranks=8", "image=registry.local/train:1", *MANY],
    "elastic": ["elastic.enabled=true"],
    "elastic_many": ["elastic.enabled=true", "elastic.slotsPerPod=2", *MANY],
}
# What a user may get wrong, and a word of the message.
REFUSED = {
    "ranks=0": "ranks",
    "ranks=many": "ranks",
    "rank=4": "rank",
    "command=": "command",
    "sharedMemory=lots": "sharedMemory",
    "static.port=22": "port",
    "elastic.enabled=true,elastic.minRanks=9": "elastic.minRanks (9) is above elastic.maxRanks (8)",
    "elastic.enabled=true,ranks=9": "must be between elastic.minRanks (2) and elastic.maxRanks (8)",
}


def helm(*arguments, values=()):
    command = [HELM, *arguments, *(part for value in values for part in ("--set", value))]
    return subprocess.run(command, capture_output=True, text=True)


def wrong(what, text):
    sys.exit(f"check_chart: {what}:\n{text}")


def render(values):
    result = helm("template", "horovod", CHART, values=values)
    if result.returncode != 0:
        wrong(f"helm template with {values}", result.stderr)
    return result.stdout


def parts(text):
    """{kind: {what matters to ranks}} of the documents."""
    found = {}
    for document in yaml.safe_load_all(text):
        spec = document["spec"]
        pod = spec.get("template", {}).get("spec", {})
        container = pod.get("containers", [{}])[0]
        found[document["kind"]] = {
            "job": {k: v for k, v in spec.items() if k not in ("template", "selector")},
            "pod": {k: pod.get(k) for k in ("restartPolicy", "securityContext", "subdomain")},
            "env": [e for e in container.get("env", []) if e["name"] not in ("SERVICE", "SLOTS")],
            "probe": container.get("readinessProbe"),
        }
    return found


def compare(name, manifest):
    """The chart with its defaults makes what the manifest says."""
    chart = parts(render(RENDERED[name]))
    ours = parts((DEPLOY / "kubernetes" / manifest).read_text(encoding="utf-8"))
    if chart != ours:
        wrong(f"{name} differs from {manifest}", f"{chart}\n{ours}")


def main():
    result = helm("lint", "--strict", "--quiet", CHART)
    if result.returncode != 0:
        wrong("helm lint", result.stdout + result.stderr)
    folder = Path(sys.argv[1])
    for name, values in RENDERED.items():
        (folder / f"{name}.yaml").write_text(render(values), encoding="utf-8")
    compare("static", "indexed_job.yaml")
    compare("elastic", "elastic.yaml")
    for values, word in REFUSED.items():
        result = helm("template", "horovod", CHART, values=[values])
        if result.returncode == 0 or word not in result.stderr:
            wrong(f"--set {values} must be refused with {word!r}", result.stderr)


if __name__ == "__main__":
    main()
