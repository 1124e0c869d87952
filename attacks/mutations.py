"""Ways to damage bytes, and to edit what JSON or TOML can hold."""

from attacks.campaign import some

ODD = (
    *(None, True, False, "", "1", "0.5", "é\ud800🐝", "../x", [], {}, [[]], [None], {"a": {}}),
    *(0, 1, -1, 2, 3, 10**19, -(10**19), 2**53, 2**63, 0.0, -0.0, 0.5, 1.0, -0.5, 1.5),
    *(1e-320, 5e-324, 1e308, -1e308, 1e301, float("nan"), float("inf"), float("-inf")),
)


def damaged(data, rng):
    """Return the bytes with a bit flipped, cut off, or a piece gone, doubled or overwritten."""
    first, second = sorted(int(place) for place in rng.integers(len(data) + 1, size=2))
    piece, way = data[first:second], int(rng.integers(10))
    if way > 4 and data:
        at = int(rng.integers(8 * len(data)))
        return data[: at // 8] + bytes([data[at // 8] ^ (1 << at % 8)]) + data[at // 8 + 1 :]
    return (
        data[:first],
        data[:first] + data[second:],
        data[:second] + piece + data[second:],
        data[:first] + rng.bytes(min(len(piece), 8)) + data[first + min(len(piece), 8) :],
        data[:first] + some((b'{"x": 1, "x": ', b"\xef\xbb\xbf", b"[" * 3000), rng) + data[first:],
    )[min(way, 4)]


def changed(content, rng):
    """Return JSON content with one change at a random place, outer places as likely as inner."""
    if not isinstance(content, dict | list) or not content or rng.random() < 0.1:
        return _other(content, rng)
    content = content.copy()
    keys = list(content) if isinstance(content, dict) else range(len(content))
    key, other, way = some(keys, rng), some(keys, rng), int(rng.integers(10))
    if way == 0:
        del content[key]
    elif way == 1:
        content[key], content[other] = content[other], content[key]
    elif way == 2 and isinstance(content, list):
        content.insert(key, content[other])
    elif way == 2:
        content[misspelt(key, rng)] = content.pop(key)
    elif way == 3 and isinstance(content, dict):
        content[misspelt(key, rng)] = some(ODD, rng)
    else:
        content[key] = changed(content[key], rng)
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
        return misspelt(value, rng)
    return some(ODD, rng)


def misspelt(word, rng):
    """Return a word with one letter changed."""
    if not word:
        return "x"
    at = int(rng.integers(len(word)))
    return word[:at] + chr((ord(word[at]) ^ (1 << int(rng.integers(6)))) & 0x7F) + word[at + 1 :]
