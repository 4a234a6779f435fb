"""Functions that worker processes can import."""

import os
import signal

from repair.core.errors import DataError


def square(number: int) -> tuple[int, int]:
    return number, number * number


def process_id(_: int) -> int:
    return os.getpid()


def interrupt_handler(_: int) -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def fail_at_seven(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number


def refuse_eleven(number: int) -> int:
    if number == 11:
        raise DataError("photo 11 is cut short")
    return number


def die_at_five(number: int) -> int:
    if number == 5:
        os._exit(9)
    return number
