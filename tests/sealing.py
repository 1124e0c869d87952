"""Saved documents as a careful editor would write them: changed, and with a fitting checksum."""

import hashlib
import json


def sealed(document):
    """Return the text of a document with the checksum of its other keys."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps(rest | {"checksum": hashlib.sha256(canonical.encode()).hexdigest()})


def unsealed(document, version=1):
    """Return the text of a document as it was before there were checksums."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    return json.dumps(rest | {"version": version})
