"""What the words and codes of a status column say about a client in a round.

Words are known, or the caller says what they mean. The meaning of a code is never guessed: 0 is
success as an exit code, and failure as a flag. Only a column's name, such as ``exit_code``,
``success`` or ``http_status``, may decide; otherwise the log is refused, and the message gives the
consequences of each reading.
"""

import re
from collections.abc import Mapping, Set
from pathlib import Path

from fedavot._checks import enumerated, quoted, shown
from fedavot.audit.reading.columns import plain
from fedavot.audit.reading.labels import counted
from fedavot.errors import FileFormatError, Option, OptionError

UNKNOWN, ABSENT, FAILED, IDLE, TOOK_PART = range(5)
"""What a row says about its client; of several rows for a round, the largest counts."""

STATUSES = {
    TOOK_PART: (
        *("ok", "okay", "true", "yes", "success", "succeeded", "successful", "replied", "reply"),
        *("completed", "complete", "done", "finished", "reported", "participated", "took_part"),
        *("aggregated", "used", "accepted", "trained", "passed"),
    ),
    IDLE: (
        *("available", "eligible", "idle", "online", "standby", "waiting", "ready"),
        *("not_asked", "not_selected", "not_sampled", "not_chosen", "unselected"),
    ),
    ABSENT: ("offline", "unavailable", "absent", "unreachable", "not_available"),
    UNKNOWN: ("", "unknown", "n/a", "na", "nan", "null", "none", "\\N", "?"),
    FAILED: (
        *("failed", "fail", "failure", "false", "no", "error", "timeout", "timed_out", "late"),
        *("dropped", "dropout", "drop_out", "crashed", "cancelled", "canceled", "aborted"),
        *("rejected", "lost", "killed", "oom", "out_of_memory", "node_fail", "preempted"),
        *("declined", "refused", "interrupted", "stale", "discarded", "not_used", "unused"),
        *("disconnected", "missing", "invalid", "skipped", "asked", "selected", "sampled"),
        *("invited", "assigned", "started", "running", "pending", "sent", "in_progress"),
    ),
}
"""Words by what they mean. A log with a word for idle clients is taken to list all clients that
could have been asked."""
SAID = {
    TOOK_PART: "took part",
    FAILED: "was asked without taking part",
    IDLE: "was available and not asked",
    ABSENT: "was not available",
    UNKNOWN: "unknown",
}
"""How statuses are read, in words."""
MEANINGS = {
    "ok": TOOK_PART,
    "failed": FAILED,
    "not_asked": IDLE,
    "offline": ABSENT,
    "unknown": UNKNOWN,
}
"""Meanings that a caller may give to a status."""
OTHER = "*"
"""Stands for all statuses that have no other meaning."""
ZERO_IS_SUCCESS = ("exit_code", "exit_status", "return_code", "returncode", "error_code", "errno")
ONE_IS_SUCCESS = (
    *("success", "succeeded", "successful", "participated", "took_part", "ok", "completed"),
    *("replied", "aggregated", "trained", "is_success", "is_ok"),
)
"""Names of columns that say what their codes mean."""
HTTP_IF_ALL_ARE = ("status_code", "response_code")
"""Names of columns with HTTP codes, if all codes are from 100 to 599. A name with the word ``http``
needs no such condition."""
NEGATIVE = re.compile(
    r"(^|_)(fail|error|exception|drop|miss|lost|late($|_)|timed?_?out|absent|offline|skip|reject|"
    r"refus|crash|abort|cancel|kill|disconnect|invalid|unable|cannot|not_|no_)"
)
"""Words and column names that denote a failure: there ``true`` does not mean success."""
_CODE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_HTTP = re.compile(r"[1-5][0-9]{2}(\.0*)?")
_QUALIFIED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FLAGS = ("true", "false", "yes", "no", "t", "f", "y", "n")
_LETTERS = ({"t": TOOK_PART, "f": FAILED}, {"y": TOOK_PART, "n": FAILED})
"""Letters that are flags if a column has no other words; elsewhere F may be short for finished."""
_WORD = {word.lower(): meaning for meaning, words in STATUSES.items() for word in words}
_UNSAID = -1


def check_statuses(statuses: Mapping[str, str] | None) -> dict[str, int]:
    """Return the meanings of statuses that the caller gave, after checking them."""
    found = {}
    for status, meaning in (statuses or {}).items():
        if not isinstance(status, str) or meaning not in MEANINGS:
            raise OptionError(
                Option("statuses"),
                f" has {shown(meaning)} for {shown(status)}; it may be {', '.join(MEANINGS)}, as "
                "in ",
                Option("statuses", {"0": "ok"}),
            )
        found[status.strip()] = MEANINGS[meaning]
    return found


def read_statuses(
    counts: Mapping[str, int], name: str, told: Mapping[str, int], source: Path
) -> dict[str, int]:
    """Return what each status of a log means.

    Parameters
    ----------
    counts : mapping from str to int
        The number of rows of each status.
    name : str
        The column's name.
    told : mapping from str to int
        The meanings that the caller gave.
    source : path
        The file, for messages.
    """
    meanings, last = {}, plain(name.rpartition(".")[2])
    words = {status.strip() for status in counts}
    certain = {**_by_name(words, plain(name), last), **told}
    for status in counts:
        found = certain.get(status.strip(), _UNSAID)
        if found == _UNSAID:
            found = _meaning(status.strip(), last, told)
        meanings[status] = told.get(OTHER, _UNSAID) if found == _UNSAID else found
    if _UNSAID in meanings.values():
        raise _question(meanings, counts, name, source)
    if TOOK_PART not in meanings.values():
        usual = "" if "" in counts else max(counts, key=lambda status: counts[status])
        raise FileFormatError(
            f"{source}: no status means that a client took part; found {tallied(counts)}; say "
            "which does, as in ",
            Option("statuses", {usual.strip(): "ok"}),
            ", or leave the column out with ",
            Option("columns", {"status": ""}),
        )
    return meanings


def note_on(meanings: Mapping[str, int], counts: Mapping[str, int]) -> str:
    """Return how the statuses were read, in words."""
    found = {
        meaning: {word: counts[word] for word in counts if meanings[word] == meaning}
        for meaning in SAID
    }
    return "status: " + "; ".join(
        f"{tallied(words)} read as '{SAID[meaning]}'" for meaning, words in found.items() if words
    )


def is_status(word: str) -> bool:
    """Return whether a word is a status that is known."""
    return not _CODE.fullmatch(word.strip()) and _of_word(word.strip()) != _UNSAID


def _by_name(words: Set[str], full: str, name: str) -> dict[str, int]:
    """Return the meanings of HTTP codes, and of letters that are flags.

    ``name`` is the last part of the column's full name, as in ``http.status``.
    """
    known = {word for word in words if _of_word(word) != UNKNOWN}
    codes = set(filter(_HTTP.fullmatch, known))
    if codes and ("http" in full.split("_") or (name in HTTP_IF_ALL_ARE and codes == known)):
        return {code: TOOK_PART if code.startswith("2") else FAILED for code in codes}
    for flags in () if NEGATIVE.search(name) else _LETTERS:
        if flags.keys() >= set(map(str.lower, known)):
            return {word: flags[word.lower()] for word in known}
    return {}


def _meaning(status: str, name: str, told: Mapping[str, int]) -> int:
    """Return the meaning of a status in a column of this name, if it is certain."""
    settled = TOOK_PART in told.values()
    if _CODE.fullmatch(status):
        number = int(float(status)) if len(status) < 16 else -1
        if name in ZERO_IS_SUCCESS:
            return FAILED if number else TOOK_PART
        if name in ONE_IS_SUCCESS and number in (0, 1):
            return TOOK_PART if number else FAILED
        return FAILED if settled else _UNSAID
    if status.lower() in _FLAGS and NEGATIVE.search(name):
        return FAILED if settled else _UNSAID
    return _of_word(status)


def _of_word(status: str) -> int:
    if _QUALIFIED.fullmatch(status):
        status = status.rpartition(".")[2]
    word = plain(status)
    known = _WORD.get(status.lower(), _WORD.get(word, _UNSAID) if word else _UNSAID)
    return FAILED if known == _UNSAID and NEGATIVE.search(word) else known


def _question(
    meanings: Mapping[str, int], counts: Mapping[str, int], name: str, source: Path
) -> FileFormatError:
    """Return the refusal of statuses that are not known, with what each reading would mean."""
    asked = {status: counts[status] for status, found in meanings.items() if found == _UNSAID}
    total = sum(counts.values())
    sure = sum(counts[status] for status, found in meanings.items() if found == TOOK_PART)
    codes = all(_CODE.fullmatch(status.strip()) for status in asked)
    usual = sorted(asked, key=lambda status: -asked[status])[:2]
    readings = [
        f"if {quoted(status)} does, {sure + asked[status]:,} of {counted(total, 'row')} did"
        for status in usual
    ]
    rest = {} if codes else {OTHER: "failed"}
    options = [Option("statuses", {status.strip(): "ok", **rest}) for status in usual]
    if sure:
        readings.append(f"if none does, {sure:,} did")
        options.append(Option("statuses", {OTHER: "failed"}))
    parts = [part for option in options for part in (" or ", option)][1:]
    return FileFormatError(
        f"{source}: column {name!r} has {tallied(asked)}, and it is not certain which of them "
        f"mean that a client took part: {'; '.join(readings)}; give ",
        *parts,
        ", or leave the column out with ",
        Option("columns", {"status": ""}),
    )


def tallied(counts: Mapping[str, int]) -> str:
    """List words with their numbers of rows, for a message."""
    return enumerated([f"{quoted(word)} ({counted(n, 'row')})" for word, n in counts.items()], 8)
