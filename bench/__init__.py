"""How fast it is, as ratios measured in one run against the pure-SQL limit on the same server."""
