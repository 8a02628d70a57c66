"""deploy/helm: rendered by the real Helm, and compared with the objects of deploy/kubernetes and with the server."""

import asyncio
import copy
import json
import re
import subprocess
from functools import cache
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.server import serving
from tests.deploy import test_kubernetes as kubernetes
from tests.deploy.shipped import DEPLOY, ROOT, read

CHART = DEPLOY / "helm"
HELM = ROOT / ".venv-helm" / "helm"
NAMESPACE = "agents"

OF_HELM = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")
INSTANCE = "app.kubernetes.io/instance"
"""Labels that kustomize's objects lack."""

Json = dict[str, Any]


def _runs() -> bool:
    try:
        return subprocess.run([HELM, "version"], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


pytestmark = [pytest.mark.peer, pytest.mark.skipif(not _runs(), reason="no Helm here: make peers, on Linux on x86-64")]


@cache
def template(*values: str, name: str = "dragoman") -> subprocess.CompletedProcess[str]:
    command = [HELM, "template", name, CHART, "--namespace", NAMESPACE]
    for value in values:
        command += ["--set", value]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def rendered(*values: str, name: str = "dragoman") -> dict[str, Json]:
    """The chart's objects with these values, by kind; config maps by the end of their names."""
    done = template(*values, name=name)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {
        each["kind"] if each["kind"] != "ConfigMap" else each["metadata"]["name"].rpartition("-")[2]: each
        for each in found
    }


def plain(made: Json) -> Json:
    """An object without what only Helm's objects have: labels of Helm, checksums, the release's instance."""
    made = copy.deepcopy(made)
    labels = made["metadata"].pop("labels")
    assert labels.keys() == {*OF_HELM, INSTANCE, "app.kubernetes.io/name"}
    annotations = made["metadata"].pop("annotations", {})
    assert annotations.keys() <= {"helm.sh/resource-policy"}
    if made["kind"] == "Deployment":
        noted = made["spec"]["template"]["metadata"].pop("annotations")
        assert noted.keys() == {"checksum/app", "checksum/settings"}
    return without_instance(ordered(made))


def ordered(made: Json) -> Json:
    """The object, with the volumes of its pods by their names: kustomize has an order of its own."""
    if made["kind"] == "Deployment":
        made["spec"]["template"]["spec"]["volumes"].sort(key=lambda volume: volume["name"])
    return made


def without_instance(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_instance(each) for name, each in value.items() if name != INSTANCE}
    if isinstance(value, list):
        return [without_instance(each) for each in value]
    return value


def built(overlay: str) -> dict[str, Json]:
    """The objects of kustomize, by kind, without labels and the hashes of names of config maps."""
    text = re.sub(r"(dragoman-(?:app|settings))-[a-z0-9]{10}\b", r"\1", kubernetes.built(overlay))
    found = {}
    for each in yaml.safe_load_all(text):
        each["metadata"].pop("labels", None)
        name = each["metadata"]["name"]
        found[each["kind"] if each["kind"] != "ConfigMap" else name.rpartition("-")[2]] = each
    return found


@pytest.mark.skipif(kubernetes.pytestmark.args[0], reason="no kubectl 1.27 or newer here")
@pytest.mark.parametrize("store", kubernetes.OVERLAYS)
def test_the_objects_are_those_of_kustomize(store: str) -> None:
    made, theirs = rendered(f"store.kind={store}"), built(store)
    assert made.keys() == theirs.keys()
    for kind, found in theirs.items():
        assert plain(made[kind]) == ordered(found), kind


def test_the_gateways_routes_are_those_of_the_component() -> None:
    made = rendered("gateway.enabled=true")
    path = kubernetes.FOLDER / "components" / "gateway" / "routes.yaml"
    for each in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        assert plain(made[each["kind"]]) == each


def test_helm_finds_no_fault() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert about["version"] == about["appVersion"]
    done = subprocess.run([HELM, "lint", "--strict", CHART], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("store.kind=mysql", "/store/kind"),
        ("settings.store=memory:", "propertyName 'store'"),
        ("settings.max_body_bytes=5", "/settings/max_body_bytes"),
        ("autoscaling.kind=vpa", "/autoscaling/kind"),
        ("replica=3", "'replica'"),
    ],
)
def test_wrong_values_are_named(values: str, named: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert named in done.stderr


def test_settings_are_variables_that_the_server_knows() -> None:
    made = rendered("store.kind=postgres", r"settings.trusted_proxies=10.1.0.0/16\,10.2.0.0/16")
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value", "x") for each in container["env"] if each["name"] != "POD_IP"}
    variables["DRAGOMAN_REPLICA_ADDRESS"] = variables["DRAGOMAN_REPLICA_ADDRESS"].replace("$(POD_IP)", "10.0.0.7")
    config = read({**made["settings"]["data"], **variables})
    assert config.trusted_proxies == ("10.1.0.0/16", "10.2.0.0/16")
    refused = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]["settings"]
    assert {f"DRAGOMAN_{name.upper()}" for name in refused["propertyNames"]["not"]["enum"]} >= {
        name for name in variables if name.startswith("DRAGOMAN_")
    }


def test_two_releases_share_nothing() -> None:
    other = rendered("store.kind=postgres", "autoscaling.kind=keda", "podMonitor.enabled=true", name="desk")
    for made in other.values():
        assert made["metadata"]["name"].partition("-")[0] == "desk"
        assert made["metadata"]["labels"][INSTANCE] == "desk"
    selector = {"app.kubernetes.io/name": "dragoman", INSTANCE: "desk"}
    assert other["Deployment"]["spec"]["selector"]["matchLabels"] == selector
    assert other["Service"]["spec"]["selector"] == selector
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        assert other[kind]["spec"]["selector"]["matchLabels"] == selector
    assert other["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == selector


def test_what_a_place_needs_is_a_value() -> None:
    made = rendered(
        "store.kind=postgres",
        "autoscaling.kind=none",
        "replicas=2",
        r"app.dragoman\.toml=[[agents]]",
        "env[0].name=OPENAI_API_KEY",
        "env[0].value=k",
        "envFrom[0].secretRef.name=models",
        "image.tag=abc",
        "image.pullPolicy=Always",
        "image.pullSecrets[0]=registry",
        "nodeSelector.disk=fast",
        "networkPolicy.egress[0].ports[0].port=8443",
    )
    workload = made["Deployment"]["spec"]
    pod = workload["template"]["spec"]
    (container,) = pod["containers"]
    assert workload["replicas"] == 2
    assert "HorizontalPodAutoscaler" not in made
    assert made["app"]["data"] == {"dragoman.toml": "[[agents]]"}
    assert container["env"][-1] == {"name": "OPENAI_API_KEY", "value": "k"}
    assert container["envFrom"][-1] == {"secretRef": {"name": "models"}}
    assert (container["image"].rpartition(":")[2], container["imagePullPolicy"]) == ("abc", "Always")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert made["NetworkPolicy"]["spec"]["egress"][-1] == {"ports": [{"port": 8443}]}
    kept = rendered("store.sqlite.existingClaim=disk", "appInImage=true")
    assert "app" not in kept
    assert {each["name"] for each in kept["Deployment"]["spec"]["template"]["spec"]["volumes"]} == {"data", "tmp"}
    assert "PersistentVolumeClaim" not in kept
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}} in kept["Deployment"]["spec"]["template"][
        "spec"
    ]["volumes"]


busy = Agent("busy")


@busy.skill
async def hang(ctx: Context) -> str:
    """Works until it is canceled."""
    return str(await asyncio.Event().wait())


async def test_keda_scales_by_a_metric_that_the_server_shows() -> None:
    made = rendered("store.kind=postgres", "autoscaling.kind=keda")
    assert "HorizontalPodAutoscaler" not in made
    assert "replicas" not in made["Deployment"]["spec"]
    scaled = made["ScaledObject"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]
    trigger, _ = scaled["triggers"]
    (found,) = re.findall(r"^max\(sum by \(pod\) \((\w+)\{(.*)\}\)\)$", trigger["metadata"]["query"])
    metric, matchers = found
    wanted = dict(re.findall(r'(\w+)=~?"([^"]*)"', matchers))
    assert wanted.pop("namespace") == NAMESPACE  # this and `pod` are Prometheus' own
    assert re.fullmatch(wanted.pop("pod"), "dragoman-5d9c7b6f4-x2x9k")
    assert wanted.keys() == {"state"}
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    message = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "go"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    async with serving(config, [busy]) as url, aiohttp.ClientSession(url, headers={"A2A-Version": "1.0"}) as http:
        for _ in range(2):
            async with http.post("/message:send", json=body) as answer:
                assert answer.status == 200
        async with http.get("/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
    samples = [each for family in families for each in family.samples if each.name == metric]
    assert {each.labels["state"] for each in samples} >= set(wanted["state"].split("|"))
    assert sum(each.value for each in samples if each.labels["state"] in wanted["state"].split("|")) == 2
