"""The Helm chart: mm2py reads the settings that it renders, and make chart-test finds what is wrong with it.

Helm and the schemas of Kubernetes are in an environment of their own, so what needs them is slow.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.local.certificates import Authority
from mm2py.config.configuration import read_settings_file
from mm2py.config.rest import Exposure

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = sorted((ROOT / "deploy/chart/golden").glob("*.yaml"))
VALUES = sorted((ROOT / "deploy/chart/values").glob("*.yaml"))


def settings_in(golden: Path) -> list[str]:
    """Return the settings files of the rendered ConfigMaps."""
    parts = golden.read_text().split("# mm2py/templates/")
    manifests = "".join(part.partition("\n")[2] for part in parts if not part.startswith("NOTES.txt"))
    objects = [one for one in yaml.safe_load_all(manifests) if one]
    return [one["data"]["mm2.properties"] for one in objects if one["kind"] == "ConfigMap"]


def test_there_is_a_golden_render_of_each_file_of_values() -> None:
    assert [path.name for path in GOLDEN] == [path.name for path in VALUES]
    assert len(GOLDEN) == 5


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_mm2py_reads_the_settings_that_the_chart_renders_and_serves_what_its_values_say(
    golden: Path, tmp_path: Path
) -> None:
    mounted = tmp_path / "etc"
    certificate = Authority().issue("mirror")
    for name, content in {
        "secrets/a.password": b"secret",
        "rest-tls/tls.crt": certificate.certificate_pem(),
        "rest-tls/tls.key": certificate.key_pem(),
        "rest-users/users": b"",
    }.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_bytes(content)
    rendered = settings_in(golden)
    assert len(set(rendered)) == 1, "the plan before an upgrade looks at the settings of the release"
    file = tmp_path / "mm2.properties"
    file.write_text(rendered[0].replace("/etc/mm2py", str(mounted)))
    configuration = read_settings_file(file, []).configuration()
    assert configuration.flows and not configuration.refused
    assert not configuration.warnings
    served = {str(one): configuration.rest.exposure(one) for one in configuration.rest.listeners}
    with_rest = {"https://0.0.0.0:8083": Exposure.USERS} if golden.stem == "rest" else {}
    assert served == {**with_rest, "http://0.0.0.0:8084": Exposure.PROBES}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_chart_is_good() -> None:
    subprocess.run(["make", "--no-print-directory", "chart-test"], cwd=ROOT, check=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "templates/_helpers.tpl",
            "readOnlyRootFilesystem: true",
            "readOnlyRootFilesystem: false",
            "may write to its root",
        ),
        ("templates/_helpers.tpl", "  drop: [ALL]", "  drop: [NET_RAW]", "keeps capabilities"),
        ("templates/_helpers.tpl", "automountServiceAccountToken: false", "", "mounts a token"),
        ("templates/deployment.yaml", "replicas: {{", "replica: {{", "Deployment mirror"),
        ("templates/deployment.yaml", "maxSurge: 1", "maxSurge: 2", "is not what the chart renders"),
        ("values.schema.json", '"additionalProperties": false,\n  "required"', '"required"', "takes an unknown value"),
    ],
)
def test_what_is_wrong_with_the_chart_is_found(tmp_path: Path, file: str, old: str, new: str, problem: str) -> None:
    subprocess.run(["make", "--no-print-directory", ".venv-packages/installed"], cwd=ROOT, check=True)
    shutil.copytree(ROOT / "deploy/chart", tmp_path / "deploy/chart")
    shutil.copytree(ROOT / "deploy/packages", tmp_path / "deploy/packages")
    broken = tmp_path / "deploy/chart/mm2py" / file
    assert old in broken.read_text()
    broken.write_text(broken.read_text().replace(old, new))
    command = [ROOT / ".venv-packages/bin/python", "-m", "deploy.packages.chart"]
    done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert problem in done.stdout + done.stderr
