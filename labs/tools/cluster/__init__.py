"""A cluster inside one machine: nodes are Linux namespaces, joined by links whose bandwidth can be set.

    links.py    the links: bandwidth, latency, cut and restored (tc and ip)
    head.py     the cluster's first process: makes the nodes and holds them; when it ends, the kernel ends all
    slurm.py    Slurm on the cluster: munged, slurmctld, and a slurmd on each node
    enter.py    runs a command on a node, from outside or from another node (in place of ssh)
    lifetime.py starts the head and ends it

Every command, and a run that sets bandwidths, uses `labs.run.cluster_state`.
"""
