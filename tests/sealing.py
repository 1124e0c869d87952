"""Saved files as a careful editor would write them: changed, and with a fitting checksum."""

import hashlib
import json

import numpy as np


def sealed(document):
    """Return the text of a document with the checksum of its other keys."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps(rest | {"checksum": hashlib.sha256(canonical.encode()).hexdigest()})


def unsealed(document, version=1):
    """Return the text of a document as it was before there were checksums."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    return json.dumps(rest | {"version": version})


def seal_archive(path, arrays):
    """Write arrays as an .npz with the checksum of all but the checksum."""
    rest = {key: np.asarray(array) for key, array in arrays.items() if key != "checksum"}
    digest = hashlib.sha256()
    for name, array in sorted(rest.items()):
        digest.update(f"{len(name)}:{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    with open(path, "wb") as stream:
        np.savez(stream, checksum=np.array(digest.hexdigest()), **rest)


def unseal_archive(path, **changes):
    """Write an .npz again without its checksum, some arrays exchanged."""
    with np.load(path) as archive:
        rest = {key: array for key, array in archive.items() if key != "checksum"}
    with open(path, "wb") as stream:
        np.savez(stream, **(rest | changes))
