"""A picture as markup to stand in a page: text as text, the page's colours, its own names.

Matplotlib's document is taken apart and written anew: what an HTML page does not need is dropped,
colours of `canvas.COLOURS` become the page's variables, and names that marks refer to get the
picture's own in front, so that several pictures on a page do not clash.
"""

import io
import re
from xml.etree import ElementTree

from fedavot.audit.report.canvas import COLOURS, Picture, drawing

_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_NOTHING = {"Date": None, "Creator": None, "Format": None, "Type": None}
_DROPPED = {"metadata", "style"}
_FAMILY = re.compile(r"font-family: [^;]*(; )?")
_FONT = re.compile(r"font: (?:(?P<weight>bold|\d+) )?(?P<size>[\d.]+)px [^;]*")
"""How Matplotlib names fonts, since 3.11 and before."""


def inline(picture: Picture) -> str:
    """Return a picture as an ``svg`` element with a title and a description.

    Parameters
    ----------
    picture : Picture
    """
    root = ElementTree.fromstring(_document(picture))
    used = set(re.findall(r"#([\w-]+)", " ".join(_values(root))))
    _clean(root, used, f"{picture.name}-")
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update(
        {
            "viewBox": box,
            "role": "img",
            "aria-labelledby": f"{picture.name}-title {picture.name}-desc",
        }
    )
    for place, (tag, text) in enumerate((("title", picture.title), ("desc", picture.alt))):
        element = ElementTree.Element(tag, {"id": f"{picture.name}-{tag}"})
        element.text = text
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _document(picture: Picture) -> str:
    stream = io.StringIO()
    with drawing():
        picture.figure.savefig(stream, format="svg", transparent=True, metadata=_NOTHING)
    return stream.getvalue()


def _values(root: ElementTree.Element) -> list[str]:
    return [value for element in root.iter() for value in element.attrib.values()]


def _clean(element: ElementTree.Element, used: set[str], prefix: str) -> None:
    """Strip an element and all within of name spaces, unused names, fonts and fixed colours."""
    element.tag = _local(element.tag)
    attributes = {
        _local(key): _value(value, prefix)
        for key, value in element.attrib.items()
        if key != "id" or value in used
    }
    if "id" in attributes:
        attributes["id"] = prefix + attributes["id"]
    element.attrib.clear()
    element.attrib.update(attributes)
    element.tail = None
    if element.text is not None and not element.text.strip():
        element.text = None
    for child in list(element):
        if _local(child.tag) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, used, prefix)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(value: str, prefix: str) -> str:
    """Return an attribute's value with the page's colours and font, and names of the picture."""
    value = _FONT.sub(_font, _FAMILY.sub("", value))
    value = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), value)
    return re.sub(r"(^|url\()#([\w-]+)", rf"\g<1>#{prefix}\g<2>", value)


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found['weight']}; " if found["weight"] else ""
    return f"{weight}font-size: {found['size']}px"
