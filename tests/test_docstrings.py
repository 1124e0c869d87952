"""Every public name has a docstring that names its parameters, and is in the reference."""

import inspect
import re
from pathlib import Path

import pytest

from test_docs import CALLABLES, CONSTRUCTED

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
# A section's entry: one name or several, perhaps with a type, and an indented line.
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?\n    \S", re.MULTILINE)
MEMBERS = {
    f"{owner}.{name}": member
    for owner, kind in CALLABLES.items()
    if inspect.isclass(kind)
    for name, member in vars(kind).items()
    if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
}


def described(function):
    """Return the names that the sections of a docstring describe."""
    found = ENTRY.findall(inspect.getdoc(function) or "")
    return {name.strip("* ") for names in found for name in names.split(",")}


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_a_public_name_describes_its_parameters(name):
    assert set(inspect.signature(CALLABLES[name]).parameters) <= described(CALLABLES[name])


@pytest.mark.parametrize("name", sorted(CALLABLES) + sorted(MEMBERS))
def test_a_public_name_or_member_has_a_docstring(name):
    assert inspect.getdoc(CALLABLES.get(name, MEMBERS.get(name)))


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_the_reference_has_every_public_name(name):
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    # A module or class is shown with all its members.
    outer = {"importance": "importance", "Cohorts": "Cohorts"}.get(name.partition(".")[0])
    assert f".{outer or name.rpartition('.')[2]}\n" in text
