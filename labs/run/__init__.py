"""What a run is: its options and names, its lock and heartbeat, its files, its errors."""
