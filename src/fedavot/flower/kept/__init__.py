"""What is kept: the log, the checkpoint and the memory."""
