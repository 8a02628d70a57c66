"""The commands of docs/tls.md work: a certificate is made, a server shows it, and the client trusts it."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import Config
from dragoman.model.task import Task
from dragoman.server import running
from dragoman.testing.agents import echo
from tests.docs.test_readme import ROOT

PAGE = (ROOT / "docs" / "tls.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("openssl") is None or shutil.which("curl") is None, reason="no openssl or curl here")
async def test_a_try_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, serve, ask = re.search(r"^(openssl .*?)\n(dragoman .*?)\n(curl .*?)$", PAGE, re.M | re.S).groups()  # type: ignore[union-attr]
    subprocess.run(shlex.split(make.replace("\\\n", " ")), check=True, capture_output=True)
    flags = dict(zip(words := shlex.split(serve), words[1:], strict=False))
    config = Config(
        port=0,
        store="memory:",
        shutdown_grace_s=0.1,
        tls_cert=flags["--tls-cert"],
        tls_key=flags["--tls-key"],
        tls_client_ca="cert.pem",
    )
    async with running(config, [echo]) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        namespace: dict[str, Any] = {}
        code = (
            CODE.replace("https://localhost:7870/", url)
            .replace("client.pem", "cert.pem")
            .replace("client.key", "key.pem")
        )
        exec(code.replace("print(", "return ("), namespace)
        assert isinstance(await namespace["greet"](), Task)
    assert ask.startswith("curl --cacert cert.pem https://localhost:7870/")
