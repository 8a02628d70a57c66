"""Unpack nginx, HAProxy and Caddy from packages of Debian or Ubuntu: `python scripts/unpack_proxies.py FOLDER`.

Invariant: nothing is installed and nothing needs root. The lists of packages and the packages are kept in the folder.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROXIES = ("nginx", "haproxy", "caddy")
ASIDE = "apt"
"""The folder of apt's own files below the given one."""

OF_EVERY_SYSTEM = ("libc6", "libgcc", "libnss3")
"""The beginnings of the names of libraries that are there already. Caddy's own programs do without NSS."""


def main() -> None:
    """Unpack the packages, with the libraries that they name. Exits with a message where there is no apt."""
    if len(sys.argv) != 2:
        sys.exit("unpack_proxies: name the folder")
    folder = Path(sys.argv[1]).absolute()
    missing = [name for name in ("apt-get", "apt-cache", "dpkg", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        sys.exit(f"unpack_proxies: no {', '.join(missing)} here: the proxies come from packages of Debian or Ubuntu")
    aside = folder / ASIDE
    for each in ("lists/partial", "archives/partial"):
        (aside / each).mkdir(parents=True, exist_ok=True)
    apt = [
        *(
            "-o",
            f"Dir::State::lists={aside}/lists",
            "-o",
            f"Dir::Cache={aside}",
            "-o",
            f"Dir::Cache::archives={aside}/archives",
        ),
        *("-o", "Debug::NoLocking=1", "-o", f"APT::Sandbox::User={os.environ.get('USER', 'root')}", "-q"),
    ]
    run("apt-get", *apt, "update", cwd=aside)
    libraries: set[str] = set()
    named = set(PROXIES)
    while named:
        shown = run("apt-cache", *apt, "depends", "--no-recommends", "--no-suggests", *sorted(named), cwd=aside)
        named = {
            name for name in re.findall(r"Depends: (lib\S+)", shown) if not name.startswith(OF_EVERY_SYSTEM)
        } - libraries
        libraries |= named
    run("apt-get", *apt, "download", *PROXIES, *sorted(libraries), cwd=aside / "archives")
    for package in sorted((aside / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", str(package), str(folder), cwd=folder)
    shutil.rmtree(aside)


def run(*command: str, cwd: Path) -> str:
    """Run a command and return what it prints. Exits with its message if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"unpack_proxies: {' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
