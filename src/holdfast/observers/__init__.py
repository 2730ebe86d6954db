"""Who listens to workers: logs, the user's recorder, Prometheus. None of them can stop the work."""
