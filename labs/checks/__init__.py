"""What `labs check` looks at, by subject; a check is a short function that returns what it found."""
