"""deploy/compose: the schema of Compose; every variable, path, name and port that the files share with the server."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.config import Config, load
from dragoman.server.running import whole_s
from tests.deploy.shipped import DEPLOY, ROOT, read

FOLDER = DEPLOY / "compose"
TEXT = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
VARIABLES = dict(re.findall(r"^([A-Z_]+)=(.*)$", (FOLDER / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
REPLICAS = ("dragoman-a", "dragoman-b", "dragoman-c")


def interpolate(text: str) -> str:
    """The text as Compose reads it with `.env.example`, where each empty variable is filled in."""

    def value(match: re.Match[str]) -> str:
        assert match[1] in VARIABLES, f"{match[1]} is not in .env.example"
        return VARIABLES[match[1]] or "filled-in"

    return re.sub(r"\$\{(\w+)(?::[-?][^}]*)?\}", value, text)


COMPOSE: dict[str, Any] = yaml.safe_load(interpolate(TEXT))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def mounts(service: str) -> dict[str, str]:
    """The mounts of a service: paths of this repository and volumes, by the path inside."""
    return {each.split(":")[1]: each.split(":")[0] for each in SERVICES[service]["volumes"]}


@pytest.mark.peer
def test_the_file_follows_the_schema_of_compose() -> None:
    check = ROOT / ".venv-deploy" / "bin" / "check-jsonschema"
    command = [str(check), "--builtin-schema", "vendor.compose-spec", str(FOLDER / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_that_a_service_uses_exists() -> None:
    for name, service in SERVICES.items():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        for source in mounts(name).values() if "volumes" in service else ():
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source
    build = SERVICES[REPLICAS[0]]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == ROOT / "Containerfile"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/deploy/compose/.env", "/deploy/compose/secrets/"} <= set(ignored)


@pytest.mark.parametrize("name", REPLICAS)
def test_the_replicas_have_settings_that_fit_together(name: str) -> None:
    service = SERVICES[name]
    config = read(service["environment"])
    assert config.store == "postgresql://dragoman@postgres/dragoman"
    assert config.bus == "nats://nats:4222"
    assert {"postgres", "nats"} <= set(service["depends_on"])
    assert SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"] == service["environment"]["PGPASSWORD"]
    assert [int(port) for port in service["expose"]] == [config.port, config.grpc_port]
    assert config.public_url == f"https://{VARIABLES['SITE']}"
    assert config.grpc_public_url == f"{VARIABLES['SITE']}:443"
    assert config.authentication == "required"
    assert list(config.trusted_proxies) == [each["subnet"] for each in COMPOSE["networks"]["inside"]["ipam"]["config"]]
    assert int(service["stop_grace_period"].rstrip("s")) > whole_s(config.shutdown_grace_s)
    assert service["hostname"] == name


def test_the_proxy_is_the_one_that_is_tested_with_the_names_of_the_replicas() -> None:
    shipped = (FOLDER / "Caddyfile").read_text(encoding="utf-8")
    tested = (DEPLOY / "proxies" / "Caddyfile").read_text(encoding="utf-8")
    for number, name in enumerate(REPLICAS):
        tested = tested.replace(f"127.0.0.1:{Config().port + number}", f"{name}:{Config().port}")
        tested = tested.replace(f"127.0.0.1:{50051 + number}", f"{name}:50051")
    tested = re.sub(r"^\ttls .*\n", "", tested.replace("agents.example.org", "{$SITE:localhost}"), flags=re.MULTILINE)
    newer = re.sub(r"^\t\tlb_try_duration .*\n", "", shipped, flags=re.MULTILINE)  # its image is newer than 2.11.3
    assert _without_comments(newer) == _without_comments(tested)
    assert mounts("proxy")["/etc/caddy/Caddyfile"] == "./Caddyfile"


def _without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def test_prometheus_scrapes_every_replica_under_the_name_that_the_alerts_expect(tmp_path: Path) -> None:
    path = FOLDER / "prometheus.yaml"
    text = path.read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{name}:{Config().port}" for name in REPLICAS]}]
    assert f'job="{job["job_name"]}"' in (DEPLOY / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
    (secret,) = SERVICES["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    inside = mounts("prometheus")
    assert inside["/etc/prometheus/prometheus.yml"] == f"./{path.name}"
    assert inside["/etc/prometheus/alerts.yaml"] == "../monitoring/alerts.yaml"
    if promtool := shutil.which("promtool"):
        shutil.copy(DEPLOY / "monitoring" / "alerts.yaml", tmp_path)
        (tmp_path / "key").touch()
        (tmp_path / path.name).write_text(text.replace(f"/run/secrets/{secret}", "key"), encoding="utf-8")
        done = subprocess.run([promtool, "check", "config", path.name], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_has_the_dashboard_and_its_source() -> None:
    inside = mounts("grafana")
    assert inside["/var/lib/grafana/dashboards/dragoman.json"] == "../monitoring/dashboard.json"
    provisioned = {where.split("/")[4]: FOLDER / what for where, what in inside.items() if "provisioning" in where}
    (provider,) = yaml.safe_load(provisioned["dashboards"].read_text(encoding="utf-8"))["providers"]
    assert f"{provider['options']['path']}/dragoman.json" in inside
    (source,) = yaml.safe_load(provisioned["datasources"].read_text(encoding="utf-8"))["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_the_agents_are_that_of_the_readme_and_one_that_outlives_its_replica() -> None:
    app = FOLDER / mounts(REPLICAS[0])["/app"]
    settings = tomllib.loads((app / "dragoman.toml").read_text(encoding="utf-8"))
    entry, other = load(app / "dragoman.toml", {}, {}).agents
    assert settings == {"agents": [{"id": "speller", "run": entry.run}, {"id": "counter", "run": other.run}]}
    assert "restartable=True" in (app / other.run.partition(":")[0]).read_text(encoding="utf-8")
    file, _, name = entry.run.partition(":")
    agent = (app / file).read_text(encoding="utf-8")
    (readme,) = re.findall(r"^```python\n(from collections.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert agent.partition("\n\n")[2] == readme
    assert f"\n{name} = Agent(" in agent
