import signal
import threading

import pytest

from gsf.core.interrupts import SIGNALS, Interrupted, interruptible, stoppable


@pytest.fixture(autouse=True)
def as_at_a_terminal():
    """Whoever started the tests may have had SIGINT ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    assert all(signal.getsignal(number) == signal.SIG_DFL for number in SIGNALS)
    for number, handler in before.items():
        signal.signal(number, handler)


def work(*signals, error=None, tell=lambda: None):
    """A stage to which signals come, one after the other, and what it saw of them."""
    with stoppable(tell) as stop:
        yield stop.asked
        for number in signals:
            signal.raise_signal(number)
            yield stop.asked
        stop.kept = "step 7 is saved"
        if error:
            raise error


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_end_says_what_is_kept(number, capsys):
    told = []
    stage = work(number, tell=lambda: told.append(1))
    assert [next(stage), next(stage)] == [False, True]
    with pytest.raises(Interrupted, match="step 7 is saved"):
        next(stage)
    assert told == [1]
    assert capsys.readouterr().err.count("Ctrl-C again stops at once") == 1


def test_the_second_signal_interrupts_at_once():
    stage = work(signal.SIGINT, signal.SIGTERM)
    assert [next(stage), next(stage)] == [False, True]
    with pytest.raises(Interrupted, match=r"^$"):
        next(stage)


def test_an_error_is_not_hidden_by_a_signal():
    with pytest.raises(ValueError, match="diverged"):
        list(work(signal.SIGTERM, error=ValueError("diverged")))


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with stoppable() as stop, interruptible():
        signal.raise_signal(signal.SIGHUP)
        assert not stop.asked
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_elsewhere_than_in_stages_signals_interrupt():
    with pytest.raises(Interrupted), interruptible():
        signal.raise_signal(signal.SIGTERM)


def test_a_thread_hears_no_signals():
    asked = []

    thread = threading.Thread(target=lambda: asked.extend(work()))
    thread.start()
    thread.join()
    assert asked == [False]
