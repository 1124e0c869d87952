"""What a log shows: shares, gaps, reach and behaviour, with intervals."""
