"""An audit from the command line: what it prints and writes, and how it refuses."""

import errno
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import polars as pl
import pytest
from click.testing import CliRunner

import fedavot as fa
from fedavot.cli import main
from fedavot.flower import Weighting

FILES = ["alignment.json", "clients.csv", "figures", "findings.json", "report.html"]
LOG = "round,client\n" + "".join(f"{t},{client}\n" for t in range(1, 41) for client in "abc")
INTERVALS = "client,start,end\n" + "".join(
    f"{client},{600 * t},{600 * t + 300}\n" for t in range(40) for client in "abc"
)


def run(*arguments, **env):
    runner = CliRunner(env={"COLUMNS": "80", **env})
    return runner.invoke(main, [str(one) for one in arguments])


def words(text):
    """Return text with line breaks, bullets' indents and borders made spaces."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run every test in a folder of its own, as what is written goes where one is."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _unillustrated(monkeypatch):
    """Leave out the pictures, which take most of a short audit, where nobody looks at them."""
    for place in ("figures", "page"):
        monkeypatch.setattr(f"fedavot.audit.report.{place}.draw", lambda findings: ())


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    assert run("sample-log", folder, "--n-clients", 20, "--days", 2).exit_code == 0
    return folder


@pytest.fixture(scope="module")
def audited(sample):
    """Return what an audit of the sample said, and where its files are."""
    out = sample / "audit"
    options = ("--importance", sample / "importance.csv", "--out", out)
    return run("audit", sample / "log.csv", *options), out


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def refused(*arguments):
    """Return the one line with which a command is refused, nothing having been written."""
    before = sorted(os.listdir())
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.output.count("Error:") == 1
    assert sorted(os.listdir()) == before
    return words(done.stderr).partition("Error: ")[2]


def test_every_command_is_listed_and_explains_itself():
    listed = run("--help").stdout
    for command in ("audit", "sample-log", "simulate", "reproduce"):
        assert f"\n  {command} " in listed
    assert "..." not in listed.partition("Commands:")[2]  # no line is cut at 80 columns
    shown = run("audit", "--help").stdout
    assert "\n    fedavot audit sample/log.csv --importance sample/importance.csv\n" in shown
    for parameter in main.commands["audit"].params:
        assert parameter.opts[0] in shown or parameter.name == "log"


def test_the_package_is_a_program_as_well():
    command = [sys.executable, "-m", "fedavot", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"fedavot, version {fa.__version__}"


def test_the_command_that_a_sample_ends_with_works_as_it_is(tmp_path):
    written = run("sample-log", "a sample's", "--n-clients", 20, "--days", 1)
    assert written.exit_code == 0
    *_, last = written.stdout.strip().splitlines()
    program, *arguments = shlex.split(last)
    assert program == "fedavot"
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir("audit-log")) == FILES


def test_a_sample_lists_its_files_and_overwrites_none(sample):
    again = run("sample-log", "sample", "--n-clients", 20, "--days", 2)
    listed = again.stdout.splitlines()[:5]
    assert [os.path.exists(file) for file in listed] == [True] * 5
    assert "already has log.csv" in refused("sample-log", "sample")


def test_the_same_seed_gives_the_same_sample(sample):
    run("sample-log", "same", "--n-clients", 20, "--days", 2, "--seed", 0)
    run("sample-log", "other", "--n-clients", 20, "--days", 2, "--seed", 1)
    with open("same/log.csv", "rb") as same, open("other/log.csv", "rb") as other:
        first = (sample / "log.csv").read_bytes()
        assert same.read() == first != other.read()


def test_a_sample_in_a_folder_that_looks_like_an_option_can_be_audited():
    written = run("sample-log", "--n-clients", 20, "--days", 1, "--", "-x")
    *_, last = written.stdout.strip().splitlines()
    assert shlex.split(last)[2] == "./-x/log.csv"


def test_an_interrupted_sample_says_that_nothing_was_written(monkeypatch):
    monkeypatch.setattr("fedavot.audit.sample.write_sample", interrupt)
    done = run("sample-log", "sample")
    assert done.exit_code == 130
    assert done.stderr == "Interrupted; nothing was written.\n"


def test_an_audit_prints_what_it_found_and_where_everything_is(audited):
    done, out = audited
    assert done.exit_code == 0, done.output
    found = json.loads((out / "findings.json").read_text())
    text = words(done.stdout)
    assert text.startswith("╭─ fedavot audit: log.csv")
    for title in ("What the plain average really optimises", "Is exact alignment possible?"):
        assert f"\n{title}\n" in done.stdout
    assert ("* recommended" in done.stdout) == (found["recommendation"]["best"] is not None)
    assert "< what you do now" in done.stdout
    assert ("report.html.\n" in done.stdout) == (found["recommendation"]["best"] is not None)
    for group in found["groups"]:
        assert f"    {group} " in done.stdout
    for name in ("report.html", "alignment.json", "findings.json", "clients.csv"):
        assert f"{out / name}\n" in done.stdout
    assert sorted(os.listdir(out)) == FILES


def test_what_is_printed_fits_eighty_columns_but_for_paths(audited):
    done, out = audited
    lines = [line for line in done.stdout.splitlines() if str(out) not in line]
    assert max(map(len, lines)) <= 80


def test_no_line_ends_between_a_number_and_its_unit(audited):
    starts = [line.strip(" │-").split(" ")[0] for line in audited[0].stdout.splitlines()]
    assert "%" not in starts
    assert "95 % interval" in words(audited[0].stdout)


@pytest.mark.usefixtures("_unillustrated")
def test_of_many_clients_those_furthest_off_either_way_are_shown(sample):
    done = run("audit", sample / "log.csv")
    table = done.stdout.partition("    Client ")[2].partition("\n\n")[0]
    shown = [line.split() for line in table.splitlines() if " % " in line]
    excess = [float(row[3]) - float(row[1]) for row in shown]
    assert excess == sorted(excess)
    assert sum(one < 0 for one in excess) == sum(one > 0 for one in excess) == 6
    assert "8 more in the report" in table


def test_the_weights_load_with_the_clients_names(audited):
    _, out = audited
    found = json.loads((out / "findings.json").read_text())
    assert list(fa.Alignment.load(out / "alignment.json").clients) == found["clients"]
    assert list(Weighting.load(out / "alignment.json").clients) == found["clients"]


def test_without_a_terminal_every_stage_is_one_line(audited):
    lines = audited[0].stderr.splitlines()
    assert lines[0] == "reading log.csv"
    assert lines[1] == "working out the plain average"
    assert lines[-1] == "working out the report"
    assert len(set(lines)) == len(lines) > 5


def test_on_a_terminal_there_are_bars_and_they_go_away(log):
    done = run("audit", log, FORCE_COLOR="1", TERM="xterm")
    assert done.exit_code == 0
    assert "reading log.csv" in done.stderr
    assert " bytes" in done.stderr
    assert done.stderr.endswith("\x1b[2K")


@pytest.mark.usefixtures("_unillustrated")
def test_groups_with_targets_say_the_same_as_an_importance_file(sample, audited):
    options = ("--groups", sample / "groups.csv", "--targets", sample / "targets.csv")
    done = run("audit", sample / "log.csv", *options, "--out", "again")
    assert done.exit_code == 0, done.output
    with open("again/findings.json") as again:
        other = json.load(again)
    found = json.loads((audited[1] / "findings.json").read_text())
    assert other["gap"] == pytest.approx(found["gap"], abs=1e-12)
    assert other["recommendation"]["action"] == found["recommendation"]["action"]


@pytest.mark.usefixtures("_unillustrated")
def test_a_comparison_with_itself_finds_nothing_changed(sample, audited):
    options = ("--importance", sample / "importance.csv", "--compare", "findings.json")
    os.link(audited[1] / "findings.json", "findings.json")
    done = run("audit", sample / "log.csv", *options)
    assert "\nWhat changed\n  - Nothing changed since the earlier audit.\n" in done.stdout


@pytest.mark.usefixtures("_unillustrated")
def test_a_comparison_says_what_changed(sample, audited):
    done = run("audit", sample / "log.csv", "--compare", audited[1] / "findings.json")
    assert done.exit_code == 0, done.output
    section = words(done.stdout.partition("\nWhat changed\n")[2].partition("\nThe log\n")[0])
    assert "No longer among the " in section
    with open("audit-log/report.html", encoding="utf-8") as page:
        assert "No longer among the " in page.read()


def test_an_audit_without_an_earlier_one_says_nothing_of_changes(audited):
    assert "What changed" not in audited[0].stdout


@pytest.mark.usefixtures("_unillustrated")
def test_the_folder_is_called_after_the_log(tmp_path):
    (tmp_path / "phones.v2.csv.gz").write_bytes(gzip.compress(LOG.encode()))
    assert run("audit", "phones.v2.csv.gz").exit_code == 0
    assert sorted(os.listdir("audit-phones.v2")) == FILES


@pytest.mark.usefixtures("_unillustrated")
def test_an_earlier_audit_in_the_folder_is_replaced(log):
    assert run("audit", log).exit_code == 0
    log.write_text(LOG.replace("40,c\n", "41,d\n"))
    assert run("audit", log).exit_code == 0
    with open("audit-log/findings.json") as found:
        assert json.load(found)["clients"] == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("_unillustrated")
def test_columns_are_named_and_left_out_by_option(tmp_path):
    (tmp_path / "odd.csv").write_text(
        LOG.replace("round,client", "when,who").replace("\n", ",x\n").replace("who,x", "who,status")
    )
    told = refused("audit", "odd.csv")
    assert "as in --column round=NAME" in told
    named = ("--column", "round=when", "--column", "client=who")
    assert "--column status=" in refused("audit", "odd.csv", *named)
    assert run("audit", "odd.csv", *named, "--column", "status=").exit_code == 0


FLAG = re.compile(r"--(?:column|where|status|dates|period|state) (?:'[^']*'|[^\s,;]+)")
UNCERTAIN = {
    "codes": LOG.replace("\n", ",0\n").replace("client,0", "client,status") + "41,a,1\n",
    "words": LOG.replace("\n", ",gut\n").replace("client,gut", "client,status"),
    "events": "".join(
        f'{{"event": "{event}", "round": {t}, "client": "a b"}}\n'
        for t in range(9)
        for event in ("train reply", "eval")
    ),
    "dates": LOG.replace("\n", ",03/04/2024\n").replace("client,03/04/2024", "client,date"),
    "columns": LOG.replace("round,client", "when it was;who").replace(",", ";"),
}


@pytest.mark.usefixtures("_unillustrated")
@pytest.mark.parametrize("form", UNCERTAIN)
def test_the_flag_that_a_refusal_gives_works_as_it_is(tmp_path, form):
    (tmp_path / "log").write_text(UNCERTAIN[form])
    told = refused("audit", "log")
    given = next(flags for part in told.split(" or ") if (flags := FLAG.findall(part)))
    flags = [word for flag in given for word in shlex.split(flag)]
    done = run("audit", "log", *flags)
    assert done.exit_code == 0, done.output


@pytest.mark.usefixtures("_unillustrated")
def test_columns_of_the_file_of_importance_are_named_apart_from_those_of_the_log(log, tmp_path):
    (tmp_path / "sizes.txt").write_text("hospital;n\na;3\nb;1\nc;1\n")
    told = refused("audit", log, "--importance", "sizes.txt")
    assert "--column importance.importance=n" in told
    named = ("--column", "importance.importance=n")
    assert run("audit", log, "--importance", "sizes.txt", *named).exit_code == 0
    both = ("--column", "importance.client=hospital", "--column", "importance=n")
    assert run("audit", log, "--importance", "sizes.txt", *both).exit_code == 0


@pytest.mark.usefixtures("_unillustrated")
def test_intervals_are_read_by_their_options(tmp_path):
    (tmp_path / "log.csv").write_text(INTERVALS)
    told = refused("audit", "log.csv")
    assert "availability intervals; " in told
    assert "as in --period 600" in told
    done = run("audit", "log.csv", "--period", 600, "--cohort-size", 2)
    assert done.exit_code == 0, done.output
    with open("audit-log/findings.json") as file:
        found = json.load(file)
    assert found["entries"] / found["rounds"] == 2


@pytest.mark.usefixtures("_unillustrated")
def test_states_are_asked_for_as_one_types_them(tmp_path):
    rows = INTERVALS.replace("\n", ",charging\n").replace("end,charging", "end,state")
    (tmp_path / "log.csv").write_text(rows + "a,90000,90001,idle\n")
    assert "as in --state charging" in refused("audit", "log.csv", "--period", 600)
    assert run("audit", "log.csv", "--period", 600, "--state", "charging").exit_code == 0


@pytest.mark.usefixtures("_unillustrated")
def test_clients_left_out_are_refused_until_the_option_says_what_they_count(log, tmp_path):
    (tmp_path / "some.csv").write_text("client,importance\na,1\nb,2\n")
    told = refused("audit", log, "--importance", "some.csv")
    assert "or use --unlisted 0" in told
    done = run("audit", log, "--importance", "some.csv", "--unlisted", 0)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--importance", "none.csv"), "'none.csv' does not exist"),
        (("--importance", "log.csv", "--targets", "log.csv"), "--importance and --targets both"),
        (("--targets", "log.csv"), "--targets are shares of groups"),
        (("--cohort-size", 3), "--cohort-size only applies"),
        (("--state", "x", "--observed", "log.csv"), "--state only applies"),
        (("--cohort-size", 0, "--period", 1), "0 is not in the range x>=1"),
        (("--period", 0), "0.0 is not in the range x>0"),
        (("--period", "ten"), "'ten' is not a valid float"),
        (("--tolerance", 0), "0.0 is not in the range 0.0001<=x<=1"),
        (("--tolerance", "1e-300"), "1e-300 is not in the range 0.0001<=x<=1"),
        (("--seed", -1), "-1 is not in the range x>=0"),
        (("--unlisted", -1), "-1.0 is not in the range x>=0"),
        (("--column", "client"), "write MEANING=NAME, as in client=device_id"),
        (("--column", "who=client"), "--column has 'who'; it may have round, client"),
        (("--column", "client=a", "--column", "client=b"), "the client has two columns"),
        (("--where", "event"), "write COLUMN=VALUE"),
        (("--where", "=x"), "write COLUMN=VALUE"),
        (("--status", "0"), "write STATUS=MEANING"),
        (("--status", "0=good"), "--status has 'good' for '0'"),
        (("--status", "0=ok", "--status", "0=failed"), "'0' has two meanings"),
        (("--dates", "first"), "'first' is not one of"),
        (("--compare", "none.json"), "'none.json' does not exist"),
        (("--compare", "log.csv"), "not a complete JSON document"),
        (("--out", "log.csv"), "is a file"),
        (("--out", ""), "the name is empty"),
        (("--out", "log.csv/audit"), "log.csv is a file, so"),
        (
            ("--out", "full"),
            "full has report.html, which no audit wrote; name another folder, or move it away",
        ),
    ],
)
def test_a_bad_option_is_refused_before_the_log_is_read(log, monkeypatch, options, told):
    os.mkdir("full")
    with open("full/report.html", "w") as mine:
        mine.write("mine")

    def read(*_, **__):
        raise AssertionError("the log was read")

    monkeypatch.setattr("fedavot.audit.reading.log.files_of", read)
    assert told in refused("audit", log, *options)


def test_a_number_that_is_no_number_is_refused_by_the_library(tmp_path):
    (tmp_path / "log.csv").write_text(INTERVALS)
    assert "period is nan" in refused("audit", "log.csv", "--period", "nan")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"round,client\n", "has a header and no rows"),
        (bytes(range(256)), "a NUL byte"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "a NUL byte"),
        (b"PAR1" + bytes(200) + b"PAR1", "damaged or not Parquet"),
        (b"\x1f\x8b" + bytes(200), "is damaged"),
        ("round,client\n1,Zoë\n".encode("latin-1"), "line 2: byte 0xeb is not UTF-8"),
        (b"round,client,time\n1,a,noon\n", "line 2: time is 'noon'"),
        (b"client,start,end\na,9,1\n", "availability intervals"),
        (b'{"round": 1, "client": {}}\n', "line 1: 'client' is an object"),
        (b"\0" * 5000, "NUL"),
    ],
)
def test_a_file_that_is_no_log_is_refused_in_one_line(tmp_path, content, told):
    (tmp_path / "log").write_bytes(content)
    assert told in refused("audit", "log")


@pytest.mark.parametrize("rows", ["1,a\n", "1,a\n1,b\n", "1,a\n2,a\n3,a\n", "1,a\n2,b\n"])
def test_a_log_too_small_to_tell_much_is_audited_all_the_same(tmp_path, rows):
    (tmp_path / "log.csv").write_text(f"round,client\n{rows}")
    done = run("audit", "log.csv")
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir("audit-log")) == FILES


@pytest.mark.parametrize("times", ["1700000000000,1700000600000", "0,1e300", "-5e15,17"])
def test_times_that_no_calendar_has_are_audited_all_the_same(tmp_path, times):
    first, last = times.split(",")
    (tmp_path / "log.csv").write_text(f"round,client,time\n1,a,{first}\n2,b,{last}\n")
    done = run("audit", "log.csv")
    assert done.exit_code == 0, done.output


def test_a_pipe_or_a_folder_of_other_files_is_not_a_log(tmp_path):
    os.mkfifo("pipe")
    assert "pipe is not a file on disk" in refused("audit", "pipe")
    (tmp_path / "log.csv").write_text(LOG)
    for option in ("--importance", "--groups", "--compare"):
        assert "pipe is not a file on disk" in refused("audit", "log.csv", option, "pipe")
    assert "pipe is not a file on disk" in refused("audit", tmp_path)
    assert "is a directory" in refused("audit", "log.csv", "--groups", tmp_path)
    assert "does not exist" in refused("audit", "none.csv")


@pytest.mark.usefixtures("_unillustrated")
@pytest.mark.parametrize("columns", ["0", "1", "20"])
def test_however_narrow_a_terminal_is_everything_is_told(log, columns):
    done = run("audit", log, COLUMNS=columns)
    assert done.exit_code == 0, done.output
    assert "depends on how often it takes part" in words(done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.usefixtures("_unillustrated")
def test_one_round_has_no_gap_in_rounds_not_fitted_to(tmp_path):
    (tmp_path / "log.csv").write_text("round,client\n1,a\n1,b\n")
    assert "held out" not in run("audit", "log.csv").stdout
    (tmp_path / "log.csv").write_text("round,client\n1,a\n1,b\n2,a\n")
    assert "held out" in run("audit", "log.csv").stdout


@pytest.mark.usefixtures("_unillustrated")
def test_a_full_disk_is_told_with_what_to_do(log, monkeypatch):
    def write(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedavot.audit.report.outputs.write_findings", write)
    assert "the disk of audit-log is full" in refused("audit", log)


@pytest.mark.usefixtures("_unillustrated")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_an_audit_that_is_told_to_end_leaves_nothing(log, monkeypatch, name):
    number = getattr(signal, name)
    before = signal.getsignal(number)

    def end(*_, **__):
        signal.raise_signal(number)

    monkeypatch.setattr("fedavot.audit.report.outputs.write_findings", end)
    done = run("audit", log)
    assert done.exit_code == 130
    assert "Interrupted; nothing was written." in done.stderr
    assert os.listdir() == ["log.csv"]
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("_unillustrated")
def test_an_interruption_of_the_summary_does_not_deny_what_was_written(log, monkeypatch):
    monkeypatch.setattr("fedavot.cli.summary.show", interrupt)
    done = run("audit", log)
    assert done.exit_code == 130
    assert "Interrupted; audit-log was written." in done.stderr
    assert sorted(os.listdir("audit-log")) == FILES


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "where",
    [
        "fedavot.audit.reading.log.read_log",
        "fedavot.audit.auditing.audit",
        "fedavot.audit.report.page.page",
        "fedavot.audit.report.outputs.os.rename",
    ],
)
def test_an_interrupted_audit_says_so_and_leaves_nothing(log, monkeypatch, where):
    monkeypatch.setattr(where, interrupt)
    done = run("audit", log)
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1] == "Interrupted; nothing was written."
    assert os.listdir() == ["log.csv"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "does not fit in memory; audit a part of it"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (pl.exceptions.ComputeError("odd bytes\nmore"), "log.csv cannot be read: odd bytes; write"),
        (pl.exceptions.PanicException("index"), "log.csv cannot be read: index; write"),
    ],
)
def test_what_else_may_go_wrong_is_one_line(log, monkeypatch, error, told):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("fedavot.audit.reading.log.read_log", fail)
    assert told in refused("audit", log)


def test_a_mistake_of_ours_is_not_hidden(log, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("fedavot.audit.auditing.audit", fail)
    done = run("audit", log)
    assert isinstance(done.exception, ZeroDivisionError)
    assert os.listdir() == ["log.csv"]


NAMES = ["[red]x[/red]", "[/x]", "\x1b[2Jy", "<b>z</b>", 'q"u,o', "👩\u200d⚕️", "w" * 300, "\u202ev"]


def test_names_are_printed_as_text_and_obeyed_by_nothing(tmp_path):
    rows = [{"round": t, "client": name} for t in range(40) for name in NAMES[t % 3 :]]
    (tmp_path / "[b]log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = run("audit", "[b]log.jsonl", "--out", "[/]")
    assert done.exit_code == 0, done.output
    for shown in ("[red]x[/red]", "[/x]", "\\x1b[2Jy", "<b>z</b>", 'q"u,o', "👩\u200d⚕️", "www…"):
        assert shown in done.stdout
    assert "fedavot audit: [b]log.jsonl" in done.stdout
    assert "[/]/report.html" in done.stdout
    for obeyed in ("\x1b", "\u202e"):
        assert obeyed not in done.stdout
    with open("[/]/findings.json") as found:
        assert sorted(json.load(found)["clients"]) == sorted(NAMES)


@pytest.mark.usefixtures("_unillustrated")
def test_a_terminal_without_the_letters_of_a_name_shows_their_codes(tmp_path):
    (tmp_path / "log.csv").write_text(LOG.replace("c\n", "Zoë\n"), encoding="utf-8")
    runner = CliRunner(charset="ascii", env={"COLUMNS": "80"})
    done = runner.invoke(main, ["audit", "log.csv"])
    assert done.exit_code == 0, done.exception
    assert "Zo\\xeb" in done.stdout


@pytest.mark.usefixtures("_unillustrated")
def test_a_folder_of_parts_is_audited_as_one_log(tmp_path, monkeypatch):
    folder = tmp_path / "log.parts"
    folder.mkdir()
    for part in range(3):
        rows = [(t, client) for t in range(part, 60, 3) for client in "abc"[: 1 + t % 3]]
        frame = pl.DataFrame(rows, schema=["round", "client"], orient="row")
        frame.write_parquet(folder / f"{part}.parquet")
    done = run("audit", folder)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "audit-log.parts" / "findings.json").read_text())
    assert (found["source"], found["rounds"], found["entries"]) == ("log.parts", 60, 120)
    monkeypatch.chdir(folder)
    assert run("audit", ".", "--out", tmp_path / "here").exit_code == 0
    again = json.loads((tmp_path / "here" / "findings.json").read_text())
    assert again["gap"] == found["gap"]
    assert again["source"] == "log.parts"


def test_a_folder_without_a_log_is_refused_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("audit", "empty")
    assert done.exit_code == 2
    assert "empty has no file with rows" in words(done.output)
    assert not (tmp_path / "audit-empty").exists()
