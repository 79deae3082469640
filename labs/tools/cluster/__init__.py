"""A cluster inside one machine: nodes are Linux namespaces, joined by links whose bandwidth can be set."""
