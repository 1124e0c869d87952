"""The names by which columns of logs and of the tables beside them are recognised."""

LISTS = (
    *("clients", "client_ids", "client_names", "devices", "nodes", "participants", "users"),
    *("sites", "workers", "hospitals"),
)
"""Names of columns that hold all clients of a round: a list, or an object by client."""
LIKELY = ("replied", "completed", "succeeded", "finished", "reported", "results")
"""Names that are suggested first for a column of clients; on their own they may be flags."""
NAMES = {
    "round": (
        *("round", "round_id", "round_number", "round_num", "round_no", "round_idx"),
        *("round_index", "server_round", "current_round", "global_round", "fl_round", "rnd"),
        "iteration",
    ),
    "client": (
        *("client", "client_id", "client_name", "cid", "device", "device_id", "node", "node_id"),
        *("participant", "participant_id", "user", "user_id", "phone", "site", "site_id"),
        *("site_name", "worker", "worker_id", "hospital", "party", "silo", *LISTS),
    ),
    "status": (
        *("status", "outcome", "result", "job_state", "job_status", "task_status", "task_state"),
        *("client_status", "client_state", "reply_status", "status_code", "success", "succeeded"),
        *("successful", "participated", "took_part", "exit_code", "exit_status", "return_code"),
        *("returncode", "error_code", "failed", "dropped", "timed_out"),
    ),
    "event": ("event", "event_type", "event_name", "message_type", "type"),
    "time": (
        *("time", "timestamp", "datetime", "time_s", "timestamp_s", "date", "ts", "created_at"),
        *("created", "logged_at", "event_time", "finished_at", "completed_at", "time_utc"),
        *("timestamp_ms", "time_ms", "ts_ms", "timestamp_ns", "unix_time", "epoch_time"),
    ),
    "weight": ("weight", "applied_weight", "aggregation_weight", "agg_weight"),
    "examples": (
        *("num_examples", "n_examples", "examples", "num_samples", "n_samples", "samples"),
        *("example_count", "sample_count", "n_train", "num_train", "train_size"),
    ),
    "start": ("start", "start_s", "start_time", "started_at", "begin", "from"),
    "end": ("end", "end_s", "end_time", "ended_at", "stop", "until", "to"),
    "state": ("state",),
    "known_from": ("known_from", "obs_start_s", "obs_start", "first_event_s", "first_event"),
    "known_until": ("known_until", "obs_end_s", "obs_end", "last_event_s", "last_event"),
    "importance": ("importance", "examples", "num_examples", "n_examples", "num_samples"),
    "group": ("group", "group_name", "group_id"),
    "share": ("share", "target", "importance"),
}
"""Names by which a column is recognised, in order of preference."""
OUTCOMES = (
    *("status", "state", "outcome", "success", "succeeded", "successful", "ok", "completed"),
    *("replied", "participated", "failed", "dropped", "aborted", "rejected"),
)
"""Last words of names that denote whether a client took part, such as ``http_status``. Such a
column is left unread only on request, because all of its rows would count as participation."""
RUNS = ("run", "run_id", "run_name", "job", "job_id", "experiment", "experiment_id", "training_id")
"""Names of columns that distinguish several runs in one log."""
HINTS = {
    "round": ("round", "iter", "epoch", "rnd"),
    "client": (
        *("client", "device", "node", "site", "party", "participant", "worker", "host", "user"),
        *("member", "silo", "phone", "machine", "peer", "mac", *LIKELY),
    ),
    "start": ("start", "begin", "from", "up"),
    "end": ("end", "stop", "until", "to", "down"),
    "importance": ("importance", "weight", "example", "sample", "train", "count", "size", "share"),
    "group": ("group", "region", "cluster", "tier", "segment", "class", "type"),
    "share": ("share", "target", "fraction", "percent", "weight", "importance"),
    "known_until": ("until", "end", "last", "to"),
}
"""Parts of names that make a column a likely suggestion, the likeliest first."""

KINDS = {
    "rows": (("round", "client"), ("status", "event", "time", "weight", "examples")),
    "intervals": (("client", "start", "end"), ("state",)),
    "observed": (("client", "known_until"), ("known_from",)),
    "importance": (("client", "importance"), ("group",)),
    "groups": (("client", "group"), ()),
    "targets": (("group", "share"), ()),
}
"""The columns that each kind of table must have, and those that it may have."""
CALLED = {
    "observed": "a coverage table",
    "importance": "a table of importance",
    "groups": "a table of groups",
    "targets": "a table of shares",
}
"""What a table is called in messages; the others are logs."""
