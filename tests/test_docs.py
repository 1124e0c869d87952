"""What the documentation shows is what happens: code, output, signatures, figures and links."""

import contextlib
import inspect
import io
import re
import runpy
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import fedavot as fa
from fedavot import audit, cli, flower, rules, selection, training
from fedavot.audit.reading.columns import NAMES
from fedavot.audit.reading.statuses import STATUSES
from fedavot.audit.report import comparison, document
from fedavot.experiments.alignment import measure
from fedavot.experiments.paper import paper_settings
from fedavot.training import mnist, partition
from fedavot.training.tasks import classifiers, linear
from uses import of_document

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
    ROOT / "benchmarks" / "README.md",
]
# A block of code, and the output that follows it if any does.
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")
# The API page writes names as `from fedavot import rules, training` brings them.
PACKAGES = {"audit": audit, "flower": flower, "rules": rules, "training": training}
READY_MADE = {
    "training.partition": (partition, "iid", "two_digits", "dirichlet", "by_group"),
    "training.mnist": (mnist, "load", "standardised"),
    "training.tasks.linear": (
        *(linear, "linear_task", "heterogeneous_regression", "heterogeneous_classification"),
        *("iid_regression", "optimum"),
    ),
    "training.tasks.classifiers": (classifiers, "softmax_task", "mlp_task", "cnn_task"),
}
CALLABLES = {
    **{name: getattr(fa, name) for name in fa.__all__ if callable(getattr(fa, name))},
    **{
        f"{package}.{name}": getattr(module, name)
        for package, module in PACKAGES.items()
        for name in module.__all__
        if callable(getattr(module, name))
    },
    **{
        f"{place}.{name}": getattr(module, name)
        for place, (module, *names) in READY_MADE.items()
        for name in names
    },
    **{
        f"importance.{name}": function
        for name, function in inspect.getmembers(fa.importance, inspect.isfunction)
        if function.__module__ == fa.importance.__name__ and not name.startswith("_")
    },
    "Cohorts.from_log": fa.Cohorts.from_log,
    "fedavot.selection.inclusion_probabilities": selection.inclusion_probabilities,
    "fedavot.audit.report.comparison.compare": comparison.compare,
    "fedavot.audit.report.document.read_findings": document.read_findings,
}
# Results are handed out, not constructed; an enumeration or a protocol has no signature of its own.
HANDED_OUT = {
    *("Alignment", "Certificate", "Status", "flower.Round", "rules.Report", "training.Run"),
    *("audit.Findings", "audit.Participation"),
}
NO_SIGNATURE = {"Law", "rules.RuleName", "training.Ending", "training.Projection"}
CONSTRUCTED = sorted(set(CALLABLES) - HANDED_OUT - NO_SIGNATURE)


def named(page):
    return page.relative_to(ROOT).as_posix()


class Word(str):
    """A default that is written as a word."""

    __slots__ = ()
    __repr__ = str.__str__


def signature_of(function):
    """Return the parameters as one would type them, without annotations, functions by name."""
    bare = []
    for each in inspect.signature(function).parameters.values():
        default = each.default
        if inspect.isfunction(default):
            default = Word(default.__name__)
        bare.append(each.replace(annotation=inspect.Parameter.empty, default=default))
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


@pytest.mark.parametrize(
    "name",
    [
        *("README.md", "docs/tutorial.md", "docs/choosing.md", "docs/training.md"),
        *("docs/flower.md", "docs/production.md", "docs/adapters.md", "docs/audit.md"),
        *("docs/steady.md", "docs/index.md", "docs/own-task.md", "docs/own-law.md"),
        *("docs/own-loop.md", "docs/own-rule.md", "docs/scale.md"),
    ],
)
def test_pages_meant_to_have_code_have_some(name):
    assert BLOCK.search((ROOT / name).read_text(encoding="utf-8"))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


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
    classes = [value for value in vars(fa.errors).values() if inspect.isclass(value)]
    errors = [kind.__name__ for kind in classes if issubclass(kind, Exception)]
    inner = [f"{package}.{name}" for package, module in PACKAGES.items() for name in module.__all__]
    public = (*fa.__all__, *errors, *inner, *CALLABLES)
    assert [name for name in public if not re.search(rf"`{re.escape(name)}\b", text)] == []


def test_the_api_page_names_every_rule_that_can_be_built():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in rules.RuleName if f'`"{name}"`' not in text] == []


@pytest.mark.parametrize("command", ["reproduce", "simulate"])
def test_the_pages_on_experiments_name_every_command_and_option(command):
    text = "".join(
        (ROOT / "docs" / name).read_text("utf-8") for name in ("api.md", "experiments.md")
    )
    found = cli.main.commands[command]
    commands = getattr(found, "commands", {"": found})
    for name, inner in commands.items():
        assert f"fedavot {command} {name}".strip() in text
        for option in inner.params:
            assert option.param_type_name == "argument" or option.opts[0] in text


@pytest.mark.parametrize("command", ["audit", "sample-log"])
def test_the_pages_on_audits_name_every_option(command):
    text = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("api.md", "audit.md"))
    assert f"fedavot {command} " in text
    options = [one for one in cli.main.commands[command].params if isinstance(one, click.Option)]
    assert [one.opts[0] for one in options if f"`{one.opts[0]}" not in text] == []


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Return what an audit of the sample printed, at 80 columns, and the folder of its files."""
    folder = tmp_path_factory.mktemp("sample")
    files, out = audit.write_sample(folder / "sample"), folder / "out"
    command = ["audit", files.log, "--importance", files.importance, "--out", out]
    ran = CliRunner().invoke(cli.main, list(map(str, command)), env={"COLUMNS": "80"})
    assert ran.exit_code == 0, ran.output
    return ran.stdout, out


def test_the_page_on_audits_names_every_key_and_column_of_the_files(sample):
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    found = document.read_findings(sample[1] / "findings.json")
    keys = {use.word for use in of_document(found, "findings.json")}
    assert len(keys) > 50
    assert [key for key in (*sorted(keys), *document.COLUMNS) if f"`{key}`" not in text] == []


def test_the_page_on_audits_names_every_word_and_column_that_is_recognised():
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    columns = [f"`{name}`" for names in NAMES.values() for name in names]
    statuses = [word for words in STATUSES.values() for word in words if word]
    assert [name for name in columns if name not in text] == []
    # A status stands between commas or at the edge of a cell.
    told = {word.strip(" .") for cell in re.split(r"[|:\n]", text) for word in cell.split(",")}
    assert [word for word in statuses if word not in told] == []


def test_the_first_page_shows_what_an_audit_of_the_sample_prints(sample):
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    section = text.partition("prints, among other things:\n\n")[2].partition("\nIt writes")[0]
    shown = [line.removeprefix("    ") for line in section.splitlines() if line.strip()]
    printed = [line.rstrip() for line in sample[0].splitlines()]
    assert len(shown) > 20
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_the_api_page_gives_signatures_as_they_are(name):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert f"`{name}{signature_of(CALLABLES[name])}`" in text


def house_script():
    return runpy.run_path(str(ROOT / "docs" / "_site" / "house.py"))


def test_the_map_of_the_house_has_every_module():
    page = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    assert page.endswith(house_script()["modules"]()), "run python docs/_site/house.py"


def test_the_map_of_the_house_names_things_that_are_there():
    text = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    names = re.findall(
        r"`([a-z_]+(?:\.[a-zA-Z_]+)+|_[a-z]+)`", text.split(house_script()["HEAD"])[0]
    )
    assert len(names) > 20
    for name in names:
        place, inside = ROOT / "src" / "fedavot", name.split(".")
        while inside and ((place / inside[0]).is_dir() or (place / f"{inside[0]}.py").exists()):
            place = place / inside.pop(0)
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        defined = re.findall(r"(?:def|class) (\w+)", source.read_text(encoding="utf-8"))
        assert {*inside} <= {*defined}, name


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("README.md", r"^This is version (\S+),"),
        ("CITATION.cff", r"^version: (\S+)$"),
        # Until a release the newest heading is what comes next.
        ("CHANGELOG.md", r"^## \[(?:Unreleased\] )?([^\]\s]+)"),
    ],
)
def test_the_version_is_the_same_everywhere(name, place):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.search(place, text, re.MULTILINE)[1] == fa.__version__


def test_the_page_on_the_paper_shows_how_far_its_settings_are_out_of_reach():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    for name, given in paper_settings().items():
        row = measure(*given)
        figures = (
            str(row.n_above),
            f"{row.importance_above:.1%}",
            f"{row.certificate.hall_ratio:.3g}",
            *(f"{gap:.1%}" for gap in row.gaps.values()),
        )
        assert f"| {name} | {' | '.join(figures)} |" in text
