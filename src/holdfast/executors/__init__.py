"""Ways to run a function: as a coroutine, in a thread, in a process that can be killed."""
