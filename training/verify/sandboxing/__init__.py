"""What proves the boundary of the Python tool: hostile programs, what is watched while they run, and faked machines."""
