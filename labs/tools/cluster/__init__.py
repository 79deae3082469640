"""A cluster inside one machine: nodes are Linux namespaces, joined by links whose bandwidth can be set.

    lifetime.py makes the nodes, and ends them; all live in the namespaces of one process, the head
    links.py    the links: bandwidth, cut and restored (tc and ip)
    slurm.py    Slurm on the cluster: munged, slurmctld, and a slurmd on each node
    enter.py    runs a command on a host, from outside or from another host (in place of ssh)
"""
