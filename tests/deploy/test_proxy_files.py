"""deploy/proxies: the ports, limits and paths are those of the server. `make test-proxies` runs the files."""

import re

import pytest
import yaml

from dragoman.bindings.grpc.services import SERVICES
from dragoman.bindings.listener import KEEP_ALIVE_S
from dragoman.bindings.routes import SERVER
from dragoman.config import Config
from tests.docs.test_readme import ROOT

FOLDER = ROOT / "deploy" / "proxies"
FILES = ("nginx.conf", "haproxy.cfg", "Caddyfile", "traefik.yaml")
texts = pytest.mark.parametrize("text", [(FOLDER / name).read_text(encoding="utf-8") for name in FILES], ids=FILES)
MIB = 1 << 20


@texts
def test_the_ports_are_the_defaults_and_those_after_them(text: str) -> None:
    assert {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", text)} == {
        *(Config().port + number for number in range(3)),
        *(50051 + number for number in range(3)),
    }


@texts
def test_every_service_of_grpc_has_its_path(text: str) -> None:
    paths = text.replace("\\", "")
    for service in (*(service.name for service in SERVICES), "grpc.health.v1.Health"):
        assert service in paths
    assert "grpc.reflection.v1alpha.ServerReflection" in paths


@texts
def test_operators_paths_exist_and_are_closed(text: str) -> None:
    for path in ("ready", "metrics"):
        assert (path,) in SERVER
        assert re.search(rf"/{path}\b", text)


def test_limits_and_times_fit_those_of_the_server() -> None:
    config = Config()
    nginx, caddy, traefik = ((FOLDER / name).read_text(encoding="utf-8") for name in (FILES[0], FILES[2], FILES[3]))
    assert f"client_max_body_size {config.max_body_bytes // MIB}m;" in nginx
    assert f"client_body_timeout {config.body_pause_s:g}s;" in nginx
    assert f"max_size {config.max_body_bytes // MIB}MiB" in caddy
    assert KEEP_ALIVE_S > 60
    assert config.blocking_timeout_s < 3600
    _, dynamic = yaml.safe_load_all(traefik)
    assert dynamic["http"]["middlewares"]["body"]["buffering"]["maxRequestBodyBytes"] == config.max_body_bytes
