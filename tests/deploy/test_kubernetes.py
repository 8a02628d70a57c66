"""deploy/kubernetes: built by kustomize, checked by Kubernetes' schemas, and compared with the server and its image."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.bindings.grpc.services import SERVICES
from dragoman.bindings.routes import SERVER
from dragoman.config import Config, load
from dragoman.server.running import whole_s
from tests.deploy.shipped import DEPLOY, ROOT, assert_command, read
from tests.docs.test_monitoring import page

FOLDER = DEPLOY / "kubernetes"
OVERLAYS = ("sqlite", "postgres")
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)

KUBERNETES = "1.31"
"""The oldest version that the files are for."""


def _kustomize() -> bool:
    """Whether there is a kubectl whose kustomize knows components and labels (5, with kubectl 1.27)."""
    if shutil.which("kubectl") is None:
        return False
    shown = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, timeout=60).stdout
    return bool(json.loads(shown or b"{}").get("kustomizeVersion", "") >= "v5")


pytestmark = pytest.mark.skipif(not _kustomize(), reason="no kubectl 1.27 or newer here")


@cache
def built(overlay: str) -> str:
    """The objects that an overlay makes, as YAML."""
    command = ["kubectl", "kustomize", str(FOLDER / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def resources(overlay: str) -> dict[str, dict[str, Any]]:
    """The resources of an overlay by kind; of config maps by their name without its hash."""
    found = list(yaml.safe_load_all(built(overlay)))
    return {each["kind"] if each["kind"] != "ConfigMap" else each["metadata"]["name"][:-11]: each for each in found}


def pod_of(overlay: str) -> dict[str, Any]:
    spec: dict[str, Any] = resources(overlay)["Deployment"]["spec"]["template"]["spec"]
    return spec


def container_of(overlay: str) -> dict[str, Any]:
    (container,) = pod_of(overlay)["containers"]
    return dict(container)


@pytest.mark.peer
def test_everything_follows_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    path = tmp_path / "built.yaml"
    everything = "\n---\n".join(map(built, OVERLAYS))
    path.write_text(everything, encoding="utf-8")
    check = [str(ROOT / ".venv-deploy" / "bin" / "kubernetes-validate"), "--strict", "-k", KUBERNETES, str(path)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall("passed for resource", done.stdout + done.stderr)
    assert len(passed) == len(list(yaml.safe_load_all(everything)))


@each_overlay
def test_probes_and_ports_are_the_servers(overlay: str) -> None:
    container, config = container_of(overlay), settings_of(overlay)
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "http": config.port,
        "grpc": config.grpc_port,
    }
    for probe, path in (("startupProbe", "health"), ("livenessProbe", "health"), ("readinessProbe", "ready")):
        assert container[probe]["httpGet"] == {"path": f"/{path}", "port": "http"}
        assert (path,) in SERVER
    service = resources(overlay)["Service"]["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == {"http": 7870, "grpc": 50051}
    assert_command(container["args"])


def settings_of(overlay: str) -> Config:
    """The configuration that the variables of the container give, with those of the image."""
    container = container_of(overlay)
    (source,) = container["envFrom"]
    assert source["configMapRef"]["name"] == resources(overlay)["dragoman-settings"]["metadata"]["name"]
    given = dict(resources(overlay)["dragoman-settings"]["data"])
    values = {each["name"]: each.get("value", "10.0.0.7") for each in container["env"]}
    order = list(values)
    if "DRAGOMAN_REPLICA_ADDRESS" in values:  # Kubernetes fills in only what stands before
        assert order.index("POD_IP") < order.index("DRAGOMAN_REPLICA_ADDRESS")
        values["DRAGOMAN_REPLICA_ADDRESS"] = values["DRAGOMAN_REPLICA_ADDRESS"].replace("$(POD_IP)", values["POD_IP"])
        del values["POD_IP"]
    return read({**given, **values})


@each_overlay
def test_the_stores_and_their_settings_fit(overlay: str) -> None:
    config, workload = settings_of(overlay), resources(overlay)["Deployment"]["spec"]
    assert config.authentication == "required"
    if overlay == "sqlite":
        assert config.store == "sqlite:////data/dragoman.db"
        assert (workload["replicas"], workload["strategy"]) == (1, {"type": "Recreate"})
        (data,) = [each for each in pod_of(overlay)["volumes"] if each["name"] == "data"]
        claim = resources(overlay)["PersistentVolumeClaim"]["metadata"]["name"]
        assert data == {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        return
    assert config.store.startswith("postgresql://")
    assert config.replica_address == "http://10.0.0.7:7870"
    assert workload["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "replicas" not in workload  # an update would undo what the autoscaler has decided


@each_overlay
def test_a_pod_has_the_time_that_the_server_takes_to_stop(overlay: str) -> None:
    command = container_of(overlay)["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    assert pod_of(overlay)["terminationGracePeriodSeconds"] > int(command[1]) + whole_s(
        settings_of(overlay).shutdown_grace_s
    )


@each_overlay
def test_the_container_may_do_nothing_that_it_need_not(overlay: str) -> None:
    """Pod Security Standards, restricted; and the user of the image."""
    pod, container = pod_of(overlay), container_of(overlay)
    (user,) = re.findall(r"^USER (\d+):", (ROOT / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    asked = pod["securityContext"]
    assert asked["runAsNonRoot"]
    assert asked["runAsUser"] == asked["runAsGroup"] == asked["fsGroup"] == int(user)
    assert asked["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod["enableServiceLinks"]
    assert not pod["automountServiceAccountToken"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {"app": "/app", "data": "/data", "tmp": "/tmp"}
    assert mounted.keys() == {each["name"] for each in pod["volumes"]}


@each_overlay
def test_everything_selects_the_pods(overlay: str) -> None:
    labels = {"app.kubernetes.io/name": "dragoman"}
    found = resources(overlay)
    assert found["Deployment"]["spec"]["template"]["metadata"]["labels"] == labels
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    if overlay == "postgres":
        assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
        assert (
            found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
            == found["Deployment"]["metadata"]["name"]
        )


def test_the_autoscalers_metric_is_one_that_the_server_shows() -> None:
    (rule,) = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text(encoding="utf-8"))["rules"]["external"]
    external, _ = resources("postgres")["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert external["external"]["metric"]["name"] == rule["name"]["as"]
    metric = rule["seriesQuery"].partition("{")[0]
    for state in re.findall(r'state=~"([^"]*)"', rule["metricsQuery"])[0].split("|"):
        assert f'{metric}{{agent="echo",state="{state}"}}' in page()


def test_the_agents_are_those_of_the_readme_and_the_routes_those_of_the_server() -> None:
    app = FOLDER / "base" / "app"
    assert (app / "speller.py").read_bytes() == (DEPLOY / "compose" / "app" / "speller.py").read_bytes()
    (entry,) = load(app / "dragoman.toml", {}, {}).agents
    assert entry.run == "speller.py:agent"
    routes = list(yaml.safe_load_all((FOLDER / "components" / "gateway" / "routes.yaml").read_text(encoding="utf-8")))
    (grpc,) = [each["spec"]["rules"] for each in routes if each["kind"] == "GRPCRoute"]
    matched = {match["method"]["service"] for match in grpc[0]["matches"]}
    assert {service.name for service in SERVICES} <= matched
    ports = {
        backend["port"] for each in routes for rule in each["spec"].get("rules", ()) for backend in rule["backendRefs"]
    }
    assert ports == {port["port"] for port in resources("postgres")["Service"]["spec"]["ports"]}
