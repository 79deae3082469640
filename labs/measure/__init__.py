"""Measurements: throughput, where an epoch's time goes, collectives, bytes on the wire, memory, utilization."""
