"""Examples drawn by hypothesis have no deadline: the machine may be busy."""

from hypothesis import settings

settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")
