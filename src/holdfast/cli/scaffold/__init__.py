"""What `holdfast init` writes, as text."""
