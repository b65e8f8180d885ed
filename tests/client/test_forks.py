"""Locks over a fork: taken by whoever forks, released by them alone, replaced in the child."""

from __future__ import annotations

import threading

import pytest

from deniable.process import forks


@pytest.fixture
def guarded(monkeypatch):
    """Guard two locks, and give them with what would be called before a fork, and after it in parent and child."""
    handlers = {}
    monkeypatch.setattr(forks, "at_fork", lambda **hooks: handlers.update(hooks))
    locks = [threading.RLock(), threading.RLock()]
    begun = []
    forks.over_forks(lambda: locks, lambda: begun.append(True), 0.05)
    return locks, handlers["before"], handlers["in_parent"], handlers["in_child"], begun


def free(lock) -> bool:
    """Tell whether another thread can have a lock."""
    taken = []

    def take() -> None:
        taken.append(lock.acquire(timeout=0.05))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(60)
    return taken[0]


def test_nobody_else_has_a_lock_while_a_process_forks(guarded):
    """From before the fork until after it in the parent the locks are the forking thread's."""
    locks, before, parent, _, begun = guarded
    before()
    assert [free(lock) for lock in locks] == [False, False]
    parent()
    assert [free(lock) for lock in locks] == [True, True]
    assert not begun


def test_the_child_begins_anew(guarded):
    """In the child the old locks are released, since what a signal handler interrupted may wait for them, and replaced."""
    locks, before, _, child, begun = guarded
    before()
    child()
    assert [free(lock) for lock in locks] == [True, True]
    assert begun == [True]


def test_a_lock_that_is_never_free_does_not_stop_a_fork(guarded):
    """After some time a fork goes on without it, and does not release what it never had."""
    locks, before, parent, _, _ = guarded
    taken, leave = threading.Event(), threading.Event()

    def keep() -> None:
        with locks[0]:
            taken.set()
            leave.wait(60)

    thread = threading.Thread(target=keep)
    thread.start()
    taken.wait(60)
    before()
    assert [free(lock) for lock in locks] == [False, False]
    parent()
    assert [free(lock) for lock in locks] == [False, True]
    leave.set()
    thread.join(60)


def test_two_threads_fork(guarded):
    """A thread that forks, and waited in vain for another that does, does not end the hold of that one, nor take it over."""
    locks, before, parent, _, _ = guarded
    held, leave = threading.Event(), threading.Event()

    def fork() -> None:
        before()
        held.set()
        leave.wait(60)
        parent()

    thread = threading.Thread(target=fork)
    thread.start()
    held.wait(60)
    before()
    parent()
    assert not free(locks[0])
    leave.set()
    thread.join(60)
    assert free(locks[0])


def test_a_fork_within_a_fork(guarded):
    """A signal handler that forks amid a fork of the same thread takes and releases its own."""
    locks, before, parent, _, _ = guarded
    before()
    before()
    parent()
    assert [free(lock) for lock in locks] == [True, True]
