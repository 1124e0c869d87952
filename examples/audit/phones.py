"""Audit a federation of phones that train while they charge: uniform importance, and skewed.

    python phones.py DATA [--out FOLDER]

DATA has two tables: flash300_intervals.csv (client, state, start_s, end_s) and
flash300_coverage.csv (client, obs_start_s, last_event_s). Rounds are every ten minutes, with up to
ten of the phones that are charging. Skewed importance is in proportion to 1 / s, where s is the
share of a phone's observed time that it spends charging, at least 0.05; a phone that was observed
for no time at all gets the median share.

FOLDER gets the skewed importance, and the report of either audit. What is printed is Markdown.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np

from fedavot.audit import Findings, Participation, audit, federation_of, read_log, write_audit

INTERVALS, COVERAGE = "flash300_intervals.csv", "flash300_coverage.csv"
STATE, PERIOD, COHORT = "charging", 600, 10
FLOOR = 0.05
"""Phones that charge less than this count as if they charged so much."""


def charging_shares(data: Path) -> dict[str, float]:
    """Return the share of its observed time that each phone spends charging."""
    charging: dict[str, float] = defaultdict(float)
    with (data / INTERVALS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["state"] == STATE:
                charging[row["client"]] += float(row["end_s"]) - float(row["start_s"])
    with (data / COVERAGE).open(encoding="utf-8", newline="") as file:
        observed = {
            row["client"]: float(row["last_event_s"]) - float(row["obs_start_s"])
            for row in csv.DictReader(file)
        }
    shares = {phone: charging[phone] / time for phone, time in observed.items() if time > 0}
    usual = median(shares.values())
    return {phone: shares.get(phone, usual) for phone in observed}


def write_importance(data: Path, path: Path) -> None:
    """Write an importance that favours phones that seldom charge."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("client", "importance"))
        rows.writerows(
            (phone, f"{1 / max(share, FLOOR):.6g}")
            for phone, share in charging_shares(data).items()
        )


def unknown_share(log: Participation, first: float, last: float) -> float:
    """Return of how many phones the state is not known, from one part of the log to another."""
    if log.unknown is None:
        return 0.0
    low, high = (round(part * log.n_rounds) for part in (first, last))
    hidden = log.unknown.between(low, high).members.size
    return float(hidden / (max(high - low, 1) * log.n_clients))


def table(findings: Findings) -> str:
    """Return where the rules stand, in rounds that they were not fitted to and over all of them."""
    lines = [
        "| rule | gap, last third | 95 % interval | effective size, last third | gap, whole log |",
        "|---|---:|---:|---:|---:|",
    ]
    for rule in findings.price.standings:
        name = f"**{rule.rule}**" if rule.rule == findings.advice.rule else rule.rule
        gap, size = rule.held_out, rule.held_out_effective
        lines.append(
            f"| {name} | {gap.value:.2f} | {gap.low:.2f} to {gap.high:.2f} | {size:.1f} | "
            f"{rule.gap:.2f} |"
        )
    return "\n".join(lines)


def told(findings: Findings) -> str:
    """Return what was found beside, and what to do."""
    laws = ", ".join(f"{score.law} {score.held_out.value:.2f}" for score in findings.fit.scores)
    short = findings.reach.deficiency
    return (
        f"Gap of FedAVOT in the last third, by the law it is fitted to: {laws}. Out of reach of "
        f"any weights: {short.value:.3f} of the importance, {short.low:.3f} to {short.high:.3f} in "
        f"the long run.\n\nRecommended: {findings.advice.action}. {findings.advice.reason}"
    )


def main() -> None:
    """Audit twice, write both reports, and print what the page shows."""
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder of the two tables")
    parser.add_argument("--out", type=Path, default=Path("results/phones"), help="for the reports")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    skewed = chosen.out / "importance.csv"
    write_importance(chosen.data, skewed)
    log = read_log(
        chosen.data / INTERVALS,
        period=PERIOD,
        cohort_size=COHORT,
        state=STATE,
        coverage=chosen.data / COVERAGE,
    )
    there = np.diff(log.available.offsets) if log.available is not None else np.zeros(1)
    print(
        f"{log.n_clients} phones, {log.n_rounds} rounds, {int((there == 0).sum())} of them without "
        f"anybody; {there.mean():.0f} charging on average. State not known: "
        f"{unknown_share(log, 0, 2 / 3):.0%} in the first two thirds, "
        f"{unknown_share(log, 2 / 3, 1):.0%} in the last third, "
        f"{unknown_share(log, 0.9, 1):.0%} in the last tenth."
    )
    for name, importance in (("uniform", "uniform"), ("skewed", skewed)):
        findings = audit(federation_of(log, importance=importance), source=INTERVALS)
        write_audit(findings, chosen.out / name)
        print(f"\nImportance {name}:\n\n{table(findings)}\n\n{told(findings)}")


if __name__ == "__main__":
    main()
