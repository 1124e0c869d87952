"""Ways to damage or edit a saved file: bytes, JSON documents, and NumPy archives.

Checksums stay as they were: they are no signatures, and who can compute one can write any file.
"""

import io
import json
import zipfile

import numpy as np

HUGE = {"@400@": "1" + "0" * 400, "@5000@": "7" * 5000, "@1e999@": "1e999", "@deep@": "[" * 3000}
ODD = (
    *(None, True, False, "", "1", "0.5", "é\ud800🐝", "../x", [], {}, [[]], [None], {"a": {}}),
    *(0, 1, -1, 2, 3, 10**19, -(10**19), 10**299, 2**53, 2**63, 0.0, -0.0, 0.5, 1.0, -0.5, 1.5),
    *(1e-320, 5e-324, 1e308, -1e308, 1e301, float("nan"), float("inf"), float("-inf")),
    *HUGE,
)


def flipped(data, rng):
    """Return the bytes with one bit flipped."""
    at = int(rng.integers(8 * len(data)))
    return data[: at // 8] + bytes([data[at // 8] ^ (1 << at % 8)]) + data[at // 8 + 1 :]


def mangled(data, rng):
    """Return the bytes cut off, with a piece gone, doubled, moved or overwritten."""
    first, second = sorted(int(place) for place in rng.integers(len(data) + 1, size=2))
    piece = data[first:second]
    way = int(rng.integers(6))
    if way == 0:
        return data[:first]
    if way == 1:
        return data[:first] + data[second:]
    if way == 2:
        return data[:second] + piece + data[second:]
    if way == 3:
        return data[:first] + rng.bytes(min(len(piece), 8)) + data[first + min(len(piece), 8) :]
    if way == 4:
        return data[:first] + b'{"x": 1, "x": ' + data[first:]
    return b"\xef\xbb\xbf" + data


def document(text, rng):
    """Return the text of a document after a few changes."""
    content = json.loads(text)
    for _ in range(int(rng.integers(1, 4))):
        content = changed(content, rng)
    edited = _text(content)
    if rng.random() < 0.05 and ": " in edited:
        # A key twice in one object, the first of any value.
        key = edited[1:].split(":", 1)[0]
        edited = f"{{{key}: 1, {edited[1:]}"
    return edited.encode("utf-8", "surrogatepass")


def changed(content, rng):
    """Return JSON content with one change at a random place, outer places as likely as inner."""
    if not isinstance(content, dict | list) or not content or rng.random() < 0.1:
        return _other(content, rng)
    if isinstance(content, list):
        return _changed_list(list(content), rng)
    content = dict(content)
    key, other = (list(content)[int(rng.integers(len(content)))] for _ in range(2))
    way = int(rng.integers(10))
    if way == 0:
        del content[key]
    elif way == 1:
        content[_misspelt(key, rng)] = content.pop(key)
    elif way == 2:
        content[key], content[other] = content[other], content[key]
    elif way == 3:
        content[_misspelt(key, rng)] = ODD[int(rng.integers(len(ODD)))]
    else:
        content[key] = changed(content[key], rng)
    return content


def _changed_list(content, rng):
    first, second = (int(place) for place in rng.integers(len(content), size=2))
    way = int(rng.integers(8))
    if way == 0:
        del content[first]
    elif way == 1:
        content.insert(first, content[second])
    elif way in (2, 3):
        content[first], content[second] = content[second], content[first]
    elif way == 4:
        return [content]
    else:
        content[first] = changed(content[first], rng)
    return content


def _other(value, rng):
    """Return something else in place of a value, often of its own kind."""
    way = int(rng.integers(8))
    if isinstance(value, int | float) and way < 5:
        factor = (-1, 0, 2, 1 + 1e-9, 1 - 1e-15)[way]
        return value * factor if abs(value) < 1e300 else 0
    if isinstance(value, int | float) and way == 5:
        return str(value)
    if isinstance(value, str) and value and way < 5:
        return _misspelt(value, rng)
    return ODD[int(rng.integers(len(ODD)))]


def _misspelt(word, rng):
    if not word:
        return "x"
    at = int(rng.integers(len(word)))
    return word[:at] + chr((ord(word[at]) ^ (1 << int(rng.integers(6)))) & 0x7F) + word[at + 1 :]


def _text(content):
    text = json.dumps(content)
    for name, digits in HUGE.items():
        text = text.replace(f'"{name}"', digits)
    return text


def archive(data, rng, *, inner=None):
    """Return an archive after a few changes, with the comment that it had.

    Parameters
    ----------
    data : bytes
        The archive.
    rng : numpy.random.Generator
        Where chance comes from.
    inner : str, optional
        An array that holds the bytes of a JSON document.
    """
    with np.load(io.BytesIO(data)) as held:
        arrays = dict(held)
    if inner is not None and rng.random() < 0.7:
        text = _text(changed(json.loads(arrays[inner].tobytes()), rng))
        arrays[inner] = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    for _ in range(int(rng.integers(0 if inner else 1, 4))):
        if arrays:
            _change_arrays(arrays, rng)
    stream = io.BytesIO()
    way = np.savez_compressed if rng.random() < 0.05 else np.savez
    way(stream, **arrays)
    edited = stream.getvalue()
    if arrays and rng.random() < 0.1:
        edited = _with_header(edited, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as original:
        comment = original.comment
    return edited[:-2] + len(comment).to_bytes(2, "little") + comment


def _change_arrays(arrays, rng):
    name, other = (list(arrays)[int(rng.integers(len(arrays)))] for _ in range(2))
    array, way = arrays[name], int(rng.integers(9))
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[f"{name}x"] = arrays.pop(name)
    elif way == 2:
        arrays[name], arrays[other] = arrays[other], array
    elif way == 3:
        kind = ("f8", "f4", "i8", "i4", "u8", "U8", "?", "c16")[int(rng.integers(8))]
        with np.errstate(all="ignore"):
            arrays[name] = np.array(
                array.astype("U") if kind == "U8" else np.ones_like(array, kind)
            )
    elif way == 4:
        arrays[name] = array.reshape(-1)
    elif way == 5:
        arrays[name] = array[..., None]
    elif way == 6:
        arrays[name] = array.reshape(-1)[: int(rng.integers(array.size + 1))]
    elif array.size and array.dtype.kind in "fiu":
        values = array.copy().reshape(-1)
        odd = (0, 1, 100, *((np.nan, np.inf, -1, 1e300) if array.dtype.kind == "f" else ()))
        with np.errstate(all="ignore"):
            values[int(rng.integers(values.size))] = odd[int(rng.integers(len(odd)))]
        arrays[name] = values.reshape(array.shape)


def _with_header(data, rng):
    """Return an archive in which one array's header says another shape or type."""
    entries = {}
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        for name in held.namelist():
            entries[name] = held.read(name)
    name = list(entries)[int(rng.integers(len(entries)))]
    shape = ("(9999999999999,)", "(-1,)", "()", "(1,)", "None", "(3L,)")[int(rng.integers(6))]
    kind = ("'<f8'", "'|O'", "'<U9'", "'bad'")[int(rng.integers(4))]
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    entries[name] = body + entries[name][-16:]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as out:
        for entry, content in entries.items():
            out.writestr(entry, content)
    return stream.getvalue()
