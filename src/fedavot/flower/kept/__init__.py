"""The files of a run: the log, the checkpoint and the memory."""
