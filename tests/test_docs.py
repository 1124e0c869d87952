"""What the documentation shows is what happens: code, output, signatures, figures and links."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

import fedavot as fa
from fedavot import selection
from fedavot.experiments.alignment import measure
from fedavot.experiments.settings import paper_settings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A block of code, and the output that follows it if any does.
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")
CALLABLES = {
    **{name: getattr(fa, name) for name in fa.__all__ if callable(getattr(fa, name))},
    **{
        f"importance.{name}": function
        for name, function in inspect.getmembers(fa.importance, inspect.isfunction)
        if function.__module__ == fa.importance.__name__ and not name.startswith("_")
    },
    "Cohorts.from_log": fa.Cohorts.from_log,
    "fedavot.selection.inclusion_probabilities": selection.inclusion_probabilities,
}
# Results are handed out, not constructed; an enumeration has no signature of its own.
CONSTRUCTED = sorted(set(CALLABLES) - {"Alignment", "Certificate", "Status"})


def named(page):
    return page.relative_to(ROOT).as_posix()


def signature_of(function):
    """Return the parameters as one would type them, without annotations."""
    parameters = inspect.signature(function).parameters.values()
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(bare)).replace("'", '"')


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # blocks may save files
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "__docs__"}
    for block in BLOCK.finditer(text):
        code, shown = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        printed = io.StringIO()
        # Blank lines in front make the line numbers of a traceback those of the page.
        program = compile("\n" * line + code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(program, namespace)
        assert printed.getvalue() == (shown or ""), f"{named(page)}, line {line}"


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md", "docs/choosing.md"])
def test_pages_meant_to_have_code_have_some(name):
    assert BLOCK.search((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_output_shown_belongs_to_code(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("```text\n") == sum(bool(shown) for _, shown in BLOCK.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_within_the_project_leads_somewhere(page):
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_api_page_names_everything_public():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    errors = [name for name, value in vars(fa.errors).items() if inspect.isclass(value)]
    assert [name for name in (*fa.__all__, *errors) if f"`{name}" not in text] == []


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_the_api_page_gives_signatures_as_they_are(name):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert f"`{name}{signature_of(CALLABLES[name])}`" in text


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CITATION.cff"])
def test_the_version_is_the_same_everywhere(name):
    assert fa.__version__ in (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_shows_the_table_the_demo_prints():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for setting in paper_settings():
        row = measure(setting)
        figures = (
            str(row.overwanted),
            f"{row.overwanted_mass:.3f}",
            f"{row.certificate.hall_ratio:.3g}",
            *(
                f"{distance:.3f}"
                for distance in (row.distance_fedavot, row.distance_uniform, row.distance_ipw)
            ),
        )
        assert f"| {setting.name} | {' | '.join(figures)} |" in text
