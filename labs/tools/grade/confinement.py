"""Confinement of this process by the Linux kernel: Landlock for what it may read, seccomp for what it may do.

Afterwards the process computes, reads the given folders, and answers on pipes that are open already. It cannot start a
process or a thread, open a file for writing, reach a network, signal or inspect another process, or raise a limit. All
of this holds for root too.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import struct
from collections.abc import Iterable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS = 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, with the same numbers on all processors."""
FILE_RIGHTS = (13, 14, 15, 15, 16)
"""How many rights on files Landlock knows, by its version; further versions know as many as the last of these."""
READ_FILE, READ_DIR = 1 << 2, 1 << 3

ALLOWED = """
    access brk clock_getres clock_gettime clock_nanosleep close dup exit exit_group faccessat faccessat2 fstat fstatfs
    futex getcpu getcwd getdents64 getegid geteuid getgid getpid getppid getrandom getrusage gettid gettimeofday getuid
    lseek lstat madvise mmap mprotect mremap munmap nanosleep newfstatat poll ppoll pread64 pselect6 read readlink
    readlinkat readv restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield select
    sigaltstack stat statx sysinfo time times uname write writev
"""
"""System calls that Python and numpy need to compute. All others fail with EPERM."""
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
EQUAL, MASKED_EQUAL = 4, 7
WRITES = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
"""The flags of `open` that change something."""
FCNTL = (1, 2, 3, 1030)
"""F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC; others would have signals sent to another process."""
TCGETS = 0x5401
"""Whether a file is a terminal."""


def missing(unsafe: bool = False) -> str:
    """Return what this computer lacks for confinement, in words; "" if it has all.

    Args:
        unsafe: Whether files may stay readable.
    """
    try:
        _library()
    except OSError:
        return "libseccomp.so.2 is not installed"
    has_all = unsafe or _landlock_version() > 0
    return "" if has_all else "this kernel has no Landlock (it needs Linux 5.13, and it must be on)"


def limit(cpu_seconds: int, memory: int) -> None:
    """Set limits that the process cannot raise: processor time, further bytes of memory, files."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for name, value in ((resource.RLIMIT_CPU, cpu_seconds), (resource.RLIMIT_AS, used + memory),
                        (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 64)):
        _, most = resource.getrlimit(name)
        lowest = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(name, (lowest, lowest))


def confine(readable: Iterable[Path], *, hide_files: bool = True) -> None:
    """Confine this process, for good.

    Args:
        readable: Folders and files that it may read.
        hide_files: Whether all other files are hidden, which needs Landlock.

    Raises:
        OSError: The kernel refuses.
    """
    _checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if hide_files:
        _hide_files(readable)
    _filter_calls()


def _landlock_version() -> int:
    return LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)


def _hide_files(readable: Iterable[Path]) -> None:
    version = _landlock_version()
    rights = (1 << FILE_RIGHTS[min(version, len(FILE_RIGHTS)) - 1]) - 1
    attributes = struct.pack("Q", rights)
    ruleset = _checked(LIBC.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path in readable:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", READ_FILE | (READ_DIR if path.is_dir() else 0), folder)
        _checked(LIBC.syscall(ADD_RULE, ruleset, 1, rule, 0))
        os.close(folder)
    _checked(LIBC.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


class Condition(ctypes.Structure):
    """A condition on an argument of a system call: `struct scmp_arg_cmp`."""

    _fields_ = [("index", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint,
                                               ctypes.POINTER(Condition)]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    return library


def _filter_calls() -> None:
    """Allow a list of system calls only; libseccomp knows their numbers on each processor."""
    library = _library()
    rules = library.seccomp_init(EPERM)

    def add(name: str, *conditions: tuple[int, int, int, int], action: int = ALLOW) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # A newer call, or one of other processors.
            array = (Condition * len(conditions))(*(Condition(*each) for each in conditions))
            if problem := library.seccomp_rule_add_array(rules, action, number, len(conditions), array):
                raise OSError(-problem, f"seccomp: {name}")

    for name in ALLOWED.split():
        add(name)
    add("open", (1, MASKED_EQUAL, WRITES, os.O_RDONLY))
    add("openat", (2, MASKED_EQUAL, WRITES, os.O_RDONLY))
    for command in FCNTL:
        add("fcntl", (1, EQUAL, command, 0))
    add("ioctl", (1, EQUAL, TCGETS, 0))
    add("tgkill", (0, EQUAL, os.getpid(), 0))  # abort()
    add("prlimit64", (0, EQUAL, 0, 0), (2, EQUAL, 0, 0))  # getrlimit()
    add("clone3", action=ENOSYS)
    if problem := library.seccomp_load(rules):
        raise OSError(-problem, "seccomp: the kernel refuses the filter")


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
