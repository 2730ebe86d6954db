"""What a task is and what may happen to it. Pure: no await, no SQL, no clock, no chance."""
