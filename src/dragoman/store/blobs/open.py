"""Chooses the blob store for the setting `files`.

Invariant: no other module knows which kinds there are. The driver of S3 is imported only if the setting names it.
"""

from pathlib import Path

from dragoman.store.blobs.api import BlobError, BlobStore
from dragoman.store.blobs.folder import FolderBlobs

FOLDER = "folder:"
S3 = "s3://"


def blob_store(files: str) -> BlobStore:
    """The blob store that `files` names, not yet opened. Raises BlobError, naming the fix."""
    if files.startswith(FOLDER):
        return FolderBlobs(
            Path(files.removeprefix(FOLDER)).expanduser().absolute()
        )  # agents may change the working directory
    try:
        from dragoman.store.blobs.s3 import S3Blobs
    except ImportError as error:
        raise BlobError(
            f"files {files!r} needs the extra s3: run pip install '.[s3]' in a copy of Dragoman's repository"
        ) from error
    return S3Blobs(files)
