"""The app as users write it, on both databases."""
