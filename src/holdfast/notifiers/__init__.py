"""Ways to pass a hint on, each keeps `holdfast.notifier`. A hint may be lost, work never is."""
