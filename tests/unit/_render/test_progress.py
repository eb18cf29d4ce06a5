from __future__ import annotations

import io
import re

from rich.console import Console

from penstock._render.progress import Progress


def clock(*readings):
    times = iter(readings)
    last = readings[-1]
    return lambda: next(times, last)


def test_where_there_is_no_terminal_every_sentence_is_a_line():
    out = io.StringIO()
    with Progress(Console(file=out, width=30), clock=clock(100.0, 100.2, 103.4)) as progress:
        progress.say("the program as it is, for at most thirty seconds")
        progress.say("num_workers=0 \x1b[31m [bold]x[/bold]")
    assert out.getvalue() == (
        " 0.2 s  the program as it is, for at most thirty seconds\n"
        " 3.4 s  num_workers=0 \\x1b[31m [bold]x[/bold]\n"
    )


def test_quiet_says_nothing():
    out = io.StringIO()
    with Progress(Console(file=out, force_terminal=True), quiet=True) as progress:
        progress.say("x")
    assert out.getvalue() == ""


def test_a_terminal_has_one_live_line_that_goes_away():
    out = io.StringIO()
    console = Console(file=out, width=60, force_terminal=True, color_system=None, _environ={"TERM": "xterm"})
    progress = Progress(console, clock=clock(0.0, 7.4))
    progress.say("the ladder \x1b[31m")
    progress.say("with 2 workers " + "x" * 80)
    progress.close()
    progress.close()
    text = out.getvalue()
    assert "the ladder \\x1b[31m" in text
    assert "x… 7 s" in text
    assert "x" * 60 not in text
    assert text.endswith("\x1b[1A\x1b[2K")  # the cursor goes up, the line is erased
    assert "\x1b[?25h" in text  # and the cursor is shown again


def test_only_the_spinner_is_coloured():
    out = io.StringIO()
    console = Console(
        file=out, width=60, force_terminal=True, color_system="standard", _environ={"TERM": "xterm"}
    )
    with Progress(console, clock=clock(0.0, 7.0)) as progress:
        progress.say("the ladder")
    assert re.search("\x1b\\[36m.\x1b\\[0m the ladder\x1b\\[2m 7 s\x1b\\[0m", out.getvalue())


def test_a_dumb_terminal_gets_plain_lines():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, _environ={"TERM": "dumb"})
    with Progress(console, clock=clock(0.0, 1.0)) as progress:
        progress.say("the ladder")
    assert out.getvalue() == "   1 s  the ladder\n"
