"""Real proxies with the configurations of deploy/proxies: only ports, paths and the name of the host are others.

Invariant: a proxy ends with the test, however this ends. Its files are in a folder of the test.
"""

import os
import re
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.certificates import Authority
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

ROOT = Path(__file__).parents[2]
CONFIGURATIONS = ROOT / "deploy" / "proxies"
UNPACKED = ROOT / ".proxies"
"""The folder in which `make test-proxies` unpacks the proxies."""

START_S = 60.0

HTTP_PORTS = (7870, 7871, 7872)
GRPC_PORTS = (50051, 50052, 50053)
"""The ports of three replicas in the configurations. A single server has the first of each."""


class Place(Struct, frozen=True):
    """The ports of a front, and the servers behind it."""

    folder: Path
    port: int
    plain_port: int
    admin_port: int
    http: Sequence[int]
    grpc: Sequence[int]


class Proxy(Struct, frozen=True):
    """A proxy: its program, its configuration, its commands, and what its configuration must have to run here."""

    name: str
    program: str
    configuration: str
    start: Callable[[Path, Place], list[str]]
    adapt: Callable[[str, Place], str] = lambda text, place: text


def _adapt_nginx(text: str, place: Place) -> str:
    """nginx keeps bodies and answers in folders that Debian's package makes."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {place.folder}/{kind};\n" for kind in kinds)
    return text.replace("http {\n", f"http {{\n{paths}", 1)


NGINX = Proxy(
    "nginx",
    "usr/sbin/nginx",
    "nginx.conf",
    lambda config, place: [
        *("-c", str(config), "-p", str(place.folder), "-e", "stderr"),
        *("-g", f"daemon off; pid {place.folder}/pid;{' user root;' if os.geteuid() == 0 else ''}"),
    ],
    _adapt_nginx,
)
HAPROXY = Proxy("haproxy", "usr/sbin/haproxy", "haproxy.cfg", lambda config, place: ["-W", "-f", str(config)])
CADDY = Proxy(
    "caddy",
    "usr/bin/caddy",
    "Caddyfile",
    lambda config, place: ["run", "--adapter", "caddyfile", "--config", str(config)],
)
PROXIES = (NGINX, HAPROXY, CADDY)


class Front:
    """One proxy before the servers of a place, with a certificate of `authority`."""

    def __init__(self, proxy: Proxy, place: Place, authority: Authority) -> None:
        self.proxy = proxy
        self.place = place
        self.url = f"https://localhost:{place.port}"
        self.authority = authority.path
        issued = authority.issue()
        both = place.folder / "chain-and-key.pem"
        both.touch(0o600)
        both.write_bytes(issued.cert.read_bytes() + issued.key.read_bytes())
        self._files = {"fullchain.pem": issued.cert, "privkey.pem": issued.key, "chain-and-key.pem": both}
        self._config = place.folder / proxy.configuration
        self._log = place.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._config.write_text(self._configuration())

    def _configuration(self) -> str:
        """The configuration as it is shipped, for this place."""
        place = self.place
        text = (CONFIGURATIONS / self.proxy.configuration).read_text(encoding="utf-8")
        for documented, real in ((HTTP_PORTS, place.http), (GRPC_PORTS, place.grpc)):
            for port in documented[len(real) :]:  # the lines of replicas that there are not
                text = re.sub(rf"^ *server .*\b{port}\b.*\n", "", text, flags=re.MULTILINE)
                text = text.replace(f" 127.0.0.1:{port}", "")
            for port, its in zip(documented, real, strict=False):
                text = _renumber(text, port, its)
        for port, its in ((80, place.plain_port), (443, place.port), (2019, place.admin_port)):
            text = _renumber(text, port, its)
        for name, path in self._files.items():
            text = text.replace(f"/etc/dragoman/{name}", str(path))
        return self.proxy.adapt(text.replace("agents.example.org", "localhost"), place)

    @property
    def context(self) -> ssl.SSLContext:
        """For clients that trust the authority."""
        return ssl.create_default_context(cafile=str(self.authority))

    def start(self) -> None:
        """Start the proxy. It answers a moment later."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, *self._command(), *self.proxy.start(self._config, self.place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place.folder,
                env=self._environment(),
                start_new_session=True,
            )

    def answers(self, path: str, status: int) -> bool:
        """Whether a request for the path is answered with the status."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.proxy.name} ended:\n{self.log}")
        try:
            with urllib.request.urlopen(self.url + path, timeout=5, context=self.context) as answer:
                return bool(answer.status == status)
        except urllib.error.HTTPError as error:
            return error.code == status
        except OSError:
            return False

    def reload(self) -> None:
        """Replace the configuration by one that answers 403 for /ready, and tell the proxy."""
        assert self._process is not None
        self._config.write_text(re.sub(r"\b404\b", "403", self._configuration()))
        match self.proxy.name:
            case "nginx":
                self._process.send_signal(signal.SIGHUP)
            case "haproxy":
                self._process.send_signal(signal.SIGUSR2)
            case _:
                command = ["reload", "--adapter", "caddyfile", "--config", str(self._config)]
                address = ["--address", f"localhost:{self.place.admin_port}"]
                subprocess.run(
                    [*self._command(), *command, *address],
                    check=True,
                    capture_output=True,
                    env=self._environment(),
                    timeout=START_S,
                )

    def kill(self) -> None:
        """Kill the proxy with all of its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(START_S)
            self._process = None

    @property
    def log(self) -> str:
        """The proxy's output so far."""
        return self._log.read_text(errors="replace")

    def _command(self) -> list[str]:
        return [str(UNPACKED / self.proxy.program)]

    def _environment(self) -> dict[str, Any]:
        libraries = {str(each.parent) for each in UNPACKED.glob("usr/lib/*/*.so*")}
        home = str(self.place.folder)
        return {"LD_LIBRARY_PATH": ":".join(sorted(libraries)), "HOME": home, "PATH": os.environ["PATH"]}


def _renumber(text: str, port: int, its: int) -> str:
    return re.sub(rf"(?<![\w.]){port}(?![\w.])", str(its), text)


def make_place(folder: Path, http: Sequence[int], grpc: Sequence[int]) -> Place:
    """A place with ports that nobody else gets."""
    folder.mkdir(exist_ok=True)
    return Place(folder, kept_port(), kept_port(), kept_port(), http, grpc)
