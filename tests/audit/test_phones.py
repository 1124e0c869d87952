"""The tutorial on phones: its script on the real data where they are, and on made-up phones always.

The real data cannot be shipped. Where they lie beside the checkout, the page's tables are compared
with what the script prints; where they do not, that one test is skipped, and the same script runs
on a folder of the same format.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedavot.audit.report.document import read_findings
from fedavot.audit.statistics.rules import label
from fedavot.importance import read_mapping

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "audit" / "phones.py"
DATA = ROOT.parent / "shared" / "data" / "flash300"
DAY = 86_400


def run(data, out):
    # Small systems are slow with several threads where other tests keep the cores busy.
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(data), "--out", str(out)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_phones(folder, *, days=3):
    """Write phones that charge every night, the later the less; one never, one never observed."""
    hours = {"1": 9, "2": 6, "3": 3, "4": 2, "5": 0.5, "6": 0, "7": 0}
    rng = np.random.default_rng(0)
    with (folder / "flash300_intervals.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("client", "state", "start_s", "end_s"))
        for phone, length in hours.items():
            for day in range(days if length else 0):
                start = day * DAY + int(rng.uniform(0, DAY - 3600 * length))
                rows.writerow((phone, "charging", start, start + int(3600 * length)))
                rows.writerow((phone, "charging_or_batt50", day * DAY, (day + 1) * DAY))
    with (folder / "flash300_coverage.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("client", "obs_start_s", "last_event_s"))
        rows.writerows((phone, 0, 0 if phone == "7" else days * DAY) for phone in hours)
    return folder


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    return run(write_phones(data), out), out


def test_both_reports_are_written(made_up):
    _, out = made_up
    for name in ("uniform", "skewed"):
        assert (out / name / "report.html").stat().st_size > 10_000
        assert read_findings(out / name / "findings.json")["rounds"] > 0


def test_skewed_importance_is_one_over_the_share_of_observed_time_spent_charging(made_up):
    _, out = made_up
    wanted = read_mapping(out / "importance.csv")
    shares = [9 / 24, 6 / 24, 3 / 24, 2 / 24]
    expected = [1 / share for share in shares]
    # The floor of .05 for those that charge less; the median for the one that was never observed.
    expected += [20, 20, 1 / np.median([*shares, 0.5 / 24, 0])]
    assert list(wanted.values()) == pytest.approx(expected, rel=1e-5)


def test_the_rules_recommended_are_those_in_bold(made_up):
    printed, out = made_up
    for name in ("uniform", "skewed"):
        part = printed.partition(f"Importance {name}:")[2].partition("Recommended:")[0]
        advice = read_findings(out / name / "findings.json")["recommendation"]
        advised = [one["rule"] for one in (advice["best"], advice["second"]) if one is not None]
        bold = [line.split(" | ")[0] for line in part.splitlines() if "**" in line]
        assert sorted(bold) == sorted(f"| **{label(rule)}**" for rule in advised)


def test_the_page_says_how_to_run_the_script_and_which_rule_makes_importance_skewed():
    page = (ROOT / "docs" / "phones.md").read_text(encoding="utf-8")
    assert "examples/audit/phones.py" in page
    assert "0.05" in page


@pytest.mark.slow
@pytest.mark.skipif(
    not DATA.is_dir(), reason="the phones' data, which cannot be shipped, are not beside the clone"
)
def test_on_the_real_phones_the_script_prints_what_the_page_shows(tmp_path):
    printed = run(DATA, tmp_path)
    page = (ROOT / "docs" / "phones.md").read_text(encoding="utf-8")
    for paragraph in printed.strip().split("\n\n"):
        assert paragraph in page
