"""``make chart-test``: the chart is linted, rendered with five files of values, and judged.

What is rendered is kept in ``deploy/chart/golden``, so that a change of the chart shows what it changes; ``--write``
writes it again. Each object is validated by the schemas of Kubernetes, each pod by the rules of the restricted level.
It runs in ``.venv-packages``, where Helm's library is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import helm_python
import kubernetes_validate
import yaml

FOLDER: Final = Path(__file__).parents[1] / "chart"
CHART: Final = FOLDER / "mm2py"
NAMED: Final = {"name": "mirror", "namespace": "kafka"}
WITHOUT_SCHEMA: Final = frozenset({"PodMonitor"})
"""Custom resources: Kubernetes has no schemas of them, so the golden files alone show them."""
WARNING: Final = 2
"""Lint's severity from which on a finding counts; below are recommendations."""
_SETTINGS: Final = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
REFUSED: Final[Mapping[str, Mapping[str, Any]]] = {
    "no settings": {},
    "an unknown value": {"settings": _SETTINGS, "replica": 3},
    "no worker": {"settings": _SETTINGS, "replicas": 0},
    "REST without a certificate": {
        "settings": _SETTINGS,
        "rest": {"enabled": True, "users": {"existingSecret": "users"}},
    },
    "REST without users": {"settings": _SETTINGS, "rest": {"enabled": True, "tls": {"existingSecret": "tls"}}},
    "listeners in the settings": {"settings": f"{_SETTINGS}listeners = http://:8083\n"},
    "providers in the settings": {"settings": f"{_SETTINGS}config.providers = file\n"},
}


def values_files() -> list[Path]:
    """Return the files of values that are rendered."""
    return sorted((FOLDER / "values").glob("*.yaml"))


def render(values: Mapping[str, Any]) -> str:
    """Return what Helm would send, and the notes. Raises: helm_python.HelmError, the values are refused."""
    with helm_python.Chart.load(CHART) as chart:
        found = chart.render(dict(values), **NAMED)
    return "".join(f"# {name}\n{text.strip()}\n---\n" for name, text in sorted(found.items()) if text.strip())


def objects_in(rendered: str) -> list[dict[str, Any]]:
    """Return the objects of a rendered chart."""
    parts = rendered.split("# mm2py/templates/")
    manifests = "".join(part.partition("\n")[2] for part in parts if not part.startswith("NOTES.txt"))
    return [one for one in yaml.safe_load_all(manifests) if one]


def problems_of(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the chart for these values."""
    for message in helm_python.lint(CHART, dict(values), strict=True)["messages"]:
        if message["severity"] >= WARNING:
            yield f"lint: {message}"
    for one in objects_in(render(values)):
        where = f"{one['kind']} {one['metadata']['name']}"
        if one["kind"] not in WITHOUT_SCHEMA:
            try:
                kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{where}: {error.message}"
        labels = one["metadata"].get("labels", {})
        missing = [
            name
            for name in ("name", "instance", "version", "managed-by")
            if not labels.get(f"app.kubernetes.io/{name}")
        ]
        if missing:
            yield f"{where} has no label app.kubernetes.io/{missing[0]}"
        pod = pod_of(one)
        if pod is not None:
            yield from (f"{where}: {problem}" for problem in pod_problems(pod))


def pod_of(one: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the description of the pods that an object makes; None: it makes none."""
    if one["kind"] == "Pod":
        return dict(one["spec"])
    template = one.get("spec", {}).get("template")
    return None if template is None else dict(template["spec"])


def pod_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the restricted level of Kubernetes' pod security, or we, do not allow in a pod."""
    if pod.get("automountServiceAccountToken") is not False:
        yield "it mounts a token of its service account"
    of_pod = pod.get("securityContext", {})
    if of_pod.get("runAsNonRoot") is not True or not of_pod.get("runAsUser"):
        yield "it may run as root"
    if of_pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "it has no seccomp profile"
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield f"it has {name}"
    for volume in pod.get("volumes", []):
        if not {"configMap", "emptyDir", "secret"} & set(volume):
            yield f"its volume {volume['name']} is of a kind that is not needed"
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield "it may become more privileged"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield "it keeps capabilities"
        if context.get("readOnlyRootFilesystem") is not True:
            yield "it may write to its root"
        if not container.get("resources", {}).get("limits", {}).get("memory"):
            yield "its memory has no limit"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield "it takes a port of its node"


def refused_problems() -> Iterator[str]:
    """Yield values that would have to be refused, and are not."""
    for what, values in REFUSED.items():
        try:
            render(values)
        except helm_python.HelmError:
            continue
        yield f"the chart takes {what}"


def rollout_problems() -> Iterator[str]:
    """Yield what is wrong if changed settings do not start new pods, or a changed image alone changes the checksum."""

    def checksum(values: Mapping[str, Any]) -> str:
        (found,) = [one for one in objects_in(render(values)) if one["kind"] == "Deployment"]
        return str(found["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    first = checksum({"settings": _SETTINGS})
    if checksum({"settings": f"{_SETTINGS}A->B.topics = x\n"}) == first:
        yield "changed settings start no new pods"
    if checksum({"settings": _SETTINGS, "image": {"tag": "2"}}) != first:
        yield "the checksum of the settings depends on the image"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the chart. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make chart-test", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write deploy/chart/golden again")
    options = parser.parse_args(arguments)
    problems = [*refused_problems(), *rollout_problems()]
    for file in values_files():
        values = yaml.safe_load(file.read_text())
        golden = FOLDER / "golden" / file.name
        if options.write:
            golden.write_text(render(values))
        elif not golden.exists() or golden.read_text() != render(values):
            problems.append(f"{golden.name} is not what the chart renders: make chart-test ARGS=--write, and look")
        found = list(problems_of(values))
        problems += [f"{file.name}: {problem}" for problem in found]
        if not found:
            print(f"{file.name}: {len(objects_in(render(values)))} objects")
    print("\n".join(problems) or f"The chart is good for Kubernetes {kubernetes_validate.latest_version()}.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
