"""Side-by-side runs against peers, as ratios measured in one run, with every answer checked."""
