"""A system-call filter for this process and its threads: no network, no new processes, no access to other processes.

The standard library has no support for it, so the filter is written as classic BPF (`seccomp(2)`). It lists the refused
calls rather than the allowed ones, because numerical libraries use many calls. Calls newer than the list fail with
ENOSYS, as on an older kernel, so that libraries fall back to known ones.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

_NEWEST_KNOWN = 451  # cachestat, Linux 6.5
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _AND, _EQUAL, _GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06  # of 32-bit words
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets into struct seccomp_data
_CLONE_THREAD = 0x00010000
_STREAM_MASK = 0x0F  # socket types carry flags in the higher bits
_PR_SET_PDEATHSIG = 1
_AF_NETLINK = 16  # glibc asks for the machine's addresses before it resolves a name
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15  # a signal to any process on input
_FIOSETOWN, _SIOCSPGRP, _TIOCSTI = 0x8901, 0x8902, 0x5412

# Name -> (x86_64, aarch64); None: the architecture has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281), "unshare": (272, 97), "setns": (308, 268),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "ioprio_set": (251, 30), "tkill": (200, 130),
    "kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261), "setpriority": (141, 140), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "prctl": (157, 167), "fcntl": (72, 25), "ioctl": (16, 29),
    "mount": (165, 40), "umount2": (166, 39), "bpf": (321, 280), "userfaultfd": (323, 282),
    "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "open_by_handle_at": (304, 265), "personality": (135, 92),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "lchown": (94, None),
    "fchown": (93, 55), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_…, column of _NUMBERS

_REFUSED = (
    "socket", "connect", "bind", "listen", "accept", "accept4",
    "fork", "vfork", "execve", "execveat", "unshare", "setns",
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_open", "pidfd_getfd", "pidfd_send_signal",
    "process_madvise", "process_mrelease", "migrate_pages", "move_pages", "ioprio_set", "tkill",
    "mount", "umount2", "bpf", "userfaultfd", "perf_event_open", "keyctl", "add_key", "request_key",
    "open_by_handle_at", "personality",
    # Memory that no limit counts, and memory that other processes may share:
    "memfd_create", "memfd_secret", "mq_open", "mq_unlink", "shmget", "shmat", "shmctl", "semget", "semop", "semctl",
    "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl",
)  # fmt: skip
_CONNECTING = ("socket", "connect")
_ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")  # libraries have an alternative
_UNSUPPORTED = ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr")
# Landlock does not deny these for files elsewhere that this user owns. They seem to succeed, because programs that copy
# and unpack files need them to.
_WITHOUT_EFFECT = (
    "chmod", "fchmod", "fchmodat", "chown", "lchown", "fchown", "fchownat", "utime", "utimes", "futimesat", "utimensat",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Check:
    """A call is allowed only if an argument's lower 32 bits under ``mask`` are (or are not) among ``values``."""

    argument: int
    values: tuple[int, ...]
    among: bool = True
    mask: int = 0xFFFFFFFF


def _checks(own_pid: int) -> dict[str, tuple[_Check, ...]]:
    """Calls that are allowed only with some arguments."""
    itself = (_Check(0, (0, own_pid)),)
    return {
        "socket": (_Check(0, (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, _AF_NETLINK)),),  # if not refused
        "socketpair": (_Check(0, (socket.AF_UNIX,)), _Check(1, (socket.SOCK_STREAM,), mask=_STREAM_MASK)),
        "clone": (_Check(0, (_CLONE_THREAD,), mask=_CLONE_THREAD),),
        "kill": itself,
        "tgkill": itself,
        "rt_sigqueueinfo": itself,
        "rt_tgsigqueueinfo": itself,
        "prlimit64": itself,
        "setpriority": (_Check(0, (0,)), _Check(1, (0, own_pid))),
        "sched_setaffinity": itself,
        "sched_setparam": itself,
        "sched_setscheduler": itself,
        "sched_setattr": itself,
        "prctl": (_Check(0, (_PR_SET_PDEATHSIG,), among=False),),
        "fcntl": (_Check(1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX), among=False),),
        "ioctl": (_Check(1, (_FIOSETOWN, _SIOCSPGRP, _TIOCSTI), among=False),),
    }


def install(libc: ctypes.CDLL, own_pid: int, *, connects: bool = False) -> None:
    """Filter this process's system calls irreversibly. It must have given up new privileges before.

    Args:
        connects: whether it may connect sockets. It can never wait for connections.

    Raises:
        OSError: this machine or its kernel has no such filters.
    """
    machine = platform.machine()
    if machine not in _MACHINES or sys.byteorder != "little" or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    program = b"".join(_program(*_MACHINES[machine], own_pid, connects))
    code = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(code)))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(head), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, "seccomp filters are not available here")


def _program(architecture: int, column: int, own_pid: int, connects: bool) -> Iterator[bytes]:
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_EQUAL, architecture, 1, 0)
    yield _step(_RETURN, _KILL)
    yield _step(_LOAD, _NUMBER)
    yield _step(_GREATER, _NEWEST_KNOWN, 0, 1)
    yield _step(_RETURN, _ERRNO | errno.ENOSYS)
    answers = ((_REFUSED, errno.EPERM), (_ABSENT, errno.ENOSYS), (_UNSUPPORTED, errno.EOPNOTSUPP), (_WITHOUT_EFFECT, 0))
    for names, number in answers:
        for name in names:
            if (call := _NUMBERS[name][column]) is not None and not (connects and name in _CONNECTING):
                yield _step(_EQUAL, call, 0, 1)
                yield _step(_RETURN, _ERRNO | number)
    for name, checks in _checks(own_pid).items():
        if (call := _NUMBERS[name][column]) is not None:
            body = [step for check in checks for step in _check(check)] + [_step(_RETURN, _ALLOW)]
            yield _step(_EQUAL, call, 0, len(body))
            yield from body
    yield _step(_RETURN, _ALLOW)


def _check(check: _Check) -> Iterator[bytes]:
    """Steps that return EPERM if the check fails, and continue after the last step otherwise."""
    yield _step(_LOAD, _FIRST_ARGUMENT + 8 * check.argument)
    yield _step(_AND, check.mask)
    for left in reversed(range(len(check.values))):
        value = check.values[-1 - left]
        if check.among:  # a match jumps over the refusal
            yield _step(_EQUAL, value, left + 1, 0)
        else:  # a match jumps to the refusal; no match at all jumps over it
            yield _step(_EQUAL, value, left, 0 if left else 1)
    yield _step(_RETURN, _ERRNO | errno.EPERM)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)
