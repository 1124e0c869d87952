"""Every mistake in a configuration is one error that names the key; every key is documented."""

import json
import re
from pathlib import Path

import pytest
from tiny import CHANCES, DRAWS, LOG, TINY, configured, refused, write

from fedavot.errors import ConfigError, InputError
from fedavot.experiments import keys
from fedavot.experiments.config import read_config
from fedavot.experiments.configured import setting_of
from fedavot.experiments.keys import STATE, TABLES, TOP, places
from fedavot.rules import RuleName

EXAMPLE = Path(keys.__file__).with_name("study.toml")


@pytest.mark.parametrize(
    ("section", "text", "where", "match"),
    [
        ("training", "rounds = 20\nstep = 1\nlocal_step = 2", "training.local_step",
         r"unknown \(did you mean 'local_steps'\?\); the keys here are rounds, step, schedule"),
        ("training", "rounds = 20\nstep = 1\nlaw = 2", "training.law",
         r"unknown \(it belongs in \[availability\]\)"),
        ("training", "rounds = 20\nstep = 1\nrules = ['full']", "training.rules",
         r"it belongs at the top, before the first \[section\]"),
        ("trainig", "rounds = 20", "trainig",
         r"unknown \(did you mean 'training'\?\); the keys here are name, .*task, .*rules"),
        ("top", "rules = ['full']\nrounds = 3", "rounds", r"it belongs in \[training\]"),
        ("task", "kind = 'hinged'", "task.kind",
         r"is 'hinged' \(did you mean 'hinge'\?\); it must be one of 'regression', .*'arrays'"),
        ("task", "kind = 3", "task.kind", r"is 3; it must be one of 'regression'"),
        ("task", "kind = ['hinge']", "task.kind", r"is \[\"hinge\"\]; it must be one of"),
        ("task", "n_clients = 3", "task.kind", r"is missing.* one of"),
        ("task", "kind = 'regression'\nn_clients = 3", "task.n_clients",
         r"not used with kind = 'regression'; it belongs to kind = 'heterogeneous-regression' or"),
        ("task", "kind = 'hinge'\nflipped = 1.5", "task: flipped", r"is 1.5; .* at most 1"),
        ("task", "kind = 'hinge'\nseed = -1", "task: seed", r"is -1; .* at least 0"),
        ("task", "kind = 'hinge'\nn_clients = 1_000_000_000", "task: data of", r"lower n_clients"),
        ("task", "kind = 'arrays'\nloss = 'squares'", "task.file",
         r"is missing, and kind = 'arrays' needs it; it must be a line of text"),
        ("task", "kind = 'mnist-cnn'\ndata_dir = 'nowhere'", "task.data_dir",
         r"nowhere does not hold train-images"),
        ("partition", "kind = 'iid'", "partition",
         r"not used with task.kind = 'heterogeneous-regression'; it belongs to 'mnist-softmax' or"),
        ("importance", "kind = 'lineer'", "importance.kind",
         r"did you mean 'linear'\?\); it must be one of 'uniform', 'by-examples'"),
        ("importance", "kind = 'power'", "importance.exponent", r"missing, and kind = 'power'"),
        ("importance", "kind = 'power'\nexponent = -1", "importance: exponent",
         r"is -1.* at least 0"),
        ("importance", "kind = 'exponential'\nscale = 0", "importance: scale",
         r"is 0.* above 0"),
        ("importance", "values = [1, 2]", "importance.values",
         r"not used with kind = 'uniform'; it belongs to kind = 'values'"),
        ("importance", "kind = 'values'\nvalues = [1, 2]", "importance: values",
         r"has 2 entries, but the task has 4 clients"),
        ("importance", "kind = 'values'\nvalues = [1, -2, 3, 4]", "importance",
         r"client '1' is -2.* at least 0"),
        ("importance", "kind = 'values'\nvalues = [0, 0, 0, 0]", "importance",
         r"all zero"),
        ("importance", "kind = 'file'\nfile = 'none.csv'", "importance.file",
         r"is 'none.csv', and there is no file .*none.csv; give a path relative to"),
        ("importance", "kind = 'file'\nfile = '" + 300 * "x" + "'", "importance.file",
         r"there is no file"),
        ("availability", "law = 'independant'\nprobabilities = 1", "availability.law",
         r"did you mean 'independent'\?"),
        ("availability", None, "availability.law", r"is missing"),
        ("availability", "law = 'uniform-cohorts'", "availability.cohort_size",
         r"missing, and law = 'uniform-cohorts' needs it"),
        ("availability", "law = 'uniform-cohorts'\ncohort_size = 5", "availability.cohort_size",
         r"size is 5; it must be at least 1 and at most 4"),
        ("availability", "law = 'uniform-cohorts'\ncohort_size = 2\nknown = 1",
         "availability.known",
         r"is 1; it must be true or false"),
        ("availability", f"{CHANCES}1.5", "availability.probabilities",
         r"client 0 is 1.5; it must be in \[0, 1\]"),
        ("availability", f"{CHANCES}nan", "availability.probabilities", r"is nan; .* or 'linear'"),
        ("availability", f"{CHANCES}true", "availability.probabilities", r"is true; it must be"),
        ("availability", f"{CHANCES}0", "availability.probabilities", r"no client is ever"),
        ("availability", f"{CHANCES}[0.1, 0.2]", "availability.probabilities: probabilities",
         r"has 2 entries, but the task has 4 clients"),
        ("availability", f"{CHANCES}'linear'\nhigh = 0.5", "availability.low",
         r"missing, and probabilities = 'linear' needs it"),
        ("availability", f"{CHANCES}0.5\nlow = 0.1", "availability.low",
         r"not used with probabilities = 0.5; it belongs to .* or rates = 'linear'"),
        ("availability", f"{CHANCES}'linear'\nlow = 0\nhigh = 2", "availability.probabilities",
         r"client 2 is 1.33.*; it must be in \[0, 1\]"),
        ("availability", f"{DRAWS}[1, 0, 0, 0]", "availability.rates", r"cohorts of 2 need"),
        ("availability", LOG, "availability.file", r"there is no file"),
        ("availability", f"{LOG}\norder = 'logs'", "availability.order", r"mean 'log'\?"),
        ("availability", f"{LOG}\ncolumns = 3", "availability.columns", r"is 3; .* a table"),
        ("availability", "law = 'mixture'\nstates = []", "availability.states", r"not empty"),
        ("availability", "law = 'mixture'\n[[availability.states]]\nlaw = 'independent'",
         "availability.states[0].probability", r"is missing"),
        ("availability", "law = 'mixture'\n[[availability.states]]\nlaw = 'uniform-cohorts'\n"
         "probability = 1\ncohort_size = 9", "availability.states[0].cohort_size", r"at most 4"),
        ("availability", "law = 'mixture'\n[[availability.states]]\nlaw = 'uniform-cohorts'\n"
         "probability = 0.9\ncohort_size = 2", "availability.states", r"0.9"),
        ("availability", "law = 'uniform-cohorts'\ncohort_size = 2\nstates = [{}]",
         "availability.states", r"belongs to law = 'mixture'"),
        ("importance", "kind = 'groups'\ntargets = {day = 1}", "importance.groups",
         r"is missing, and kind = 'groups' needs it"),
        ("importance", "kind = 'groups'\ntargets = 3", "importance.targets", r"is 3; .* a table"),
        ("availability", "law = 'mixture'\nstates = [3]", "availability.states[0]", r"a table"),
        ("training", "step = 1", "training.rounds", r"is missing"),
        ("training", "rounds = true\nstep = 1", "training.rounds",
         r"is true; it must be an integer"),
        ("training", "rounds = 20.0\nstep = 1", "training.rounds", r"is 20.0; .* an integer"),
        ("training", "rounds = 'ten'\nstep = 1", "training.rounds", r"is 'ten'; .* an integer"),
        ("training", "rounds = 0\nstep = 1", "training: rounds", r"is 0; .* at least 1"),
        ("training", "rounds = 1_000_000_000\nstep = 1", "training.rounds", r"run fewer rounds"),
        ("training", "rounds = 20\nstep = inf", "training.step", r"is inf; .* a finite number"),
        ("training", f"rounds = 20\nstep = 1{'0' * 400}", "training.step", r"a finite number"),
        ("training", "rounds = 20\nstep = 1\nschedule = 'cosin'", "training.schedule",
         r"did you mean 'cosine'\?\); it must be one of 'constant', 'inverse-root', 'decaying'"),
        ("training", "rounds = 20\nstep = 1\nschedule = 'decaying'", "training.halved_after",
         r"missing, and schedule = 'decaying' needs it"),
        ("training", "rounds = 20\nstep = 1\nradius = 2", "training.radius",
         r"not used with projection = 'none'; it belongs to projection = 'ball'"),
        ("training", "rounds = 20\nstep = 1\nprojection = 'box'\nlow = 1\nhigh = 0", "training",
         r"low must be below"),
        ("training", "rounds = 20\nstep = 1\nbatch_size = 6", "training.batch_size",
         r"batches of 6 .* client 0 .* has 5"),
        ("training", "rounds = 20\nstep = 1\ntail = 21", "training: tail",
         r"is 21; .* at most 20"),
        ("training", "rounds = 20\nstep = 1\nseeds = [1, 1]", "training: seeds",
         r"are \[1, 1\]; .* each once"),
        ("training", "rounds = 20\nstep = 1\nseeds = []", "training.seeds", r"is \[\]; it must"),
        ("top", "rules = ['full']\ntask = 3", "task",
         r"is 3; it must be a table"),
        ("top", "name = 3\nrules = ['full']", "name", r"is 3; it must be a line of text"),
        ("top", "name = ''\nrules = ['full']", "name", r"is ''; it must be a line of text"),
        ("training", f"rounds = 0x{'f' * 5000}\nstep = 1", "training: rounds",
         r"is int of thousands of digits; .* at least 1"),
        ("training", f"rounds = 2\nstep = 1\nseeds = [0x{'f' * 5000}]", "training: seed",
         r"int of thousands of digits; it must be"),
        ("training", f"rounds = 2\nstep = 1{'0' * 400}", "training.step",
         r"it must be a finite number"),
        ("top", "name = '..'\nrules = ['full']", "name", r"is '..'; .* not of dots alone"),
        ("top", "name = '.'\nrules = ['full']", "name", r"is '.'; it must be"),
        ("top", "name = ' .. '\nrules = ['full']", "name", r"is ' .. '; it must be"),
        ("top", "name = 'a/../../b'\nrules = ['full']", "name", r"it must be .* without / and"),
        ("top", "name = 'a\\b'\nrules = ['full']", "name", r"it must be .* without / and"),
        ("top", 'name = "a\\u0000b"\nrules = ["full"]', "name", r"it must be a line of text"),
        ("top", f"name = '{'a' * 101}'\nrules = ['full']", "name", r"of 1 to 100 characters"),
        ("top", None, "rules", r"is missing; .* list of names, .* or tables headed \[\[rules\]\]"),
        ("top", "rules = 'full'", "rules", r"is 'full'; it must be a list of names"),
        ("top", "rules = []", "rules", r"is \[\]; it must be a list of names"),
        ("top", "rules = ['full', 'fedavott']", "rules[1].name",
         r"'fedavott'.*did you mean 'fedavot'"),
        ("top", "rules = [3]", "rules[0]", r"is 3; it must be a rule's name or a table"),
        ("top", "rules = [{cohort_size = 3}]", "rules[0].name", r"is missing; it must be a line"),
        ("top", "rules = [{name = 'qffl', Q = 3}]", "rules[0]",
         r"no option 'Q'; did you mean 'q'\?"),
        ("top", "rules = ['fedavot-select']", "rules[0]", r"needs the option 'cohort_size'"),
        ("top", "rules = [{name = 'fedavot-select', cohort_size = 0}]", "rules[0]",
         r"is 0.* at least 1"),
        ("top", "rules = [{name = 'f3ast', smoothing = 2}]", "rules[0]", r"smoothing is 2"),
        ("top", "rules = [{name = 'fedavg', known = true}]", "rules[0].known", r"\[availability\]"),
        ("top", "rules = ['full', 'fedavg', 'full']", "rules[2]", r"'full' a second time"),
        ("top", "rules = ['full', 'fedavot-variance']", "rules[1]", r"needs explicit cohorts"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_error_that_names_the_key(tmp_path, section, text, where, match):
    sections = {section: text}
    if section == "top" and text and "task = " in text:
        sections["task"] = None
    refused(tmp_path, where, match, **sections)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"\nrules = [", r"not valid TOML: .*at the end, line 2"),
        (b'name = "a"\nrounds 3', r"not valid TOML: .*line 2, column 8"),
        (b"name = 'a'\nname = 'b'", r"not valid TOML: .*line 2"),
        (b"name = 'a'\nrounds = " + b"9" * 5000, r"not valid TOML: .*5000 digits"),
        (b"\xff\xfe", r"line 1: byte 0xff is not UTF-8"),
    ],
)
def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path, text, match):
    path = tmp_path / "study.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=match) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_cannot_lend_the_study_its_name_is_refused(tmp_path):
    path = tmp_path / "...toml"
    path.write_text(
        "rules=['full']\n[task]\nkind='regression'\n[availability]\nlaw='uniform-cohorts'\n"
        "cohort_size=1\n[training]\nrounds=1\nstep=1\n"
    )
    with pytest.raises(ConfigError, match=r"name is missing, and the file's own"):
        read_config(path)


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"cannot be read \(.*\); give the path of a TOML file"):
        read_config(tmp_path / name)


@pytest.mark.parametrize("rule", ["fedavot", "horvitz-thompson", "self-normalised-ipw"])
def test_rules_that_need_the_law_are_refused_where_it_is_not_known(tmp_path, rule):
    told = TINY["availability"]
    assert configured(tmp_path, top=f"rules = ['{rule}']").rules[0].name == rule
    refused(
        tmp_path,
        "rules[0], with availability.known = false",
        rf"'{rule}' needs",
        top=f"rules = ['{rule}']",
        availability=f"{told}\nknown = false",
    )


@pytest.mark.parametrize("seeds", [0, -1, (), (1, 1), (-1,), 1001])
def test_seeds_given_by_hand_are_checked_too(tmp_path, seeds):
    config = read_config(write(tmp_path))
    with pytest.raises(InputError, match=r"seed.*; (it must be|give) "):
        setting_of(config, seeds=seeds)


def test_the_example_shows_every_key_and_every_choice():
    text = EXAMPLE.read_text(encoding="utf-8")
    tables = [places(table) for table in (TOP, STATE, *TABLES.values())]
    assert sum(map(len, tables)) > 40
    words = {name for table in tables for name in table}
    held = [place.key for table in tables for found in table.values() for place in found]
    words |= {f'"{word}"' for key in held for word in key.brings}
    assert [word for word in sorted(words) if word not in text] == []
    assert [name for name in RuleName if not re.search(rf"\b{name}\b", text)] == []


def test_the_example_sets_what_it_comments_on_in_the_right_section():
    text = EXAMPLE.read_text(encoding="utf-8")
    for section, table in TABLES.items():
        pattern = rf"^(# )?\[{section}\]\n(.*?)^(# )?\[(\[rules|\w)"
        own = re.search(pattern, text, re.DOTALL | re.MULTILINE)
        assert own is not None
        shown = set(re.findall(r"^(?:# )?(\w+) = ", own.group(2), re.MULTILINE))
        if section == "availability":
            assert "[[availability.states]]" in text
            shown = (shown - STATE.keys()) | {"law", "states"}
        assert shown == places(table).keys()


def test_a_long_value_is_cut_in_the_message(tmp_path):
    values = json.dumps([1] * 500 + [-1])
    path = write(tmp_path, training=f"rounds = 2\nstep = {values}")
    with pytest.raises(ConfigError, match=r"is \[1, 1, .*\.\.\.; it must be") as caught:
        read_config(path)
    assert len(str(caught.value)) < 300
