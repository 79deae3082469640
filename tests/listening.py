"""Where processes listen."""

import psutil


def addresses(*processes: psutil.Process) -> set[str]:
    """Return the addresses on which processes wait for connections over TCP."""
    result = set()
    for one in processes:
        try:
            result |= {each.laddr.ip for each in one.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue  # It has ended meanwhile.
    return result
