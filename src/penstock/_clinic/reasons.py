"""Why a program could not be examined: PS9xx, each with what, why and how to go on. Pure.

A program whose loader is itself the failure (`__len__` raises, workers cannot start) is sick and no matter of
this file: `could_not_run` speaks only of programs that ended before they took a batch from any loader.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock._clinic.report import Reason
from penstock._lab.record import Failure, Frame, ProcessLook, Site, Trial

# code: (title, page), in the form of penstock.errors.CODES
PAGES: dict[str, tuple[str, str]] = {
    "PS901": (
        "there is no such program",
        "The target is neither a file, nor a module that can be imported, nor `module:callable`. Nothing was "
        "started. Give the path of a script as you would to `python`, or the dotted name as to `python -m`.",
    ),
    "PS902": (
        "the program ended before it used a loader",
        "The program ran to its end, or left early, and took no batch from any `DataLoader`. "
        "Pass the arguments with which it trains after `--`; or name a function that returns the loader: "
        "`penstock doctor package.module:make_loader`.",
    ),
    "PS903": (
        "the program raised an exception before it used a loader",
        "The exception came out of the program's own code while it was being prepared. The message gives its "
        "type, text and line. It has nothing to do with loaders: repair it first, then examine again.",
    ),
    "PS904": (
        "a module is missing",
        "The program imports a module that is not installed in the Python which runs the doctor. Install it "
        "there, or run the doctor with the Python of your project: `python -m penstock doctor …`.",
    ),
    "PS905": (
        "the program wants arguments",
        "It ended with a message about its command line. Everything after `--` is passed on to it: "
        "`penstock doctor train.py -- --data ./data --epochs 1`.",
    ),
    "PS906": (
        "the program asks for input",
        "An examined program has an empty standard input, because nobody is there to answer. Pass what it "
        "asks for as an argument or in the environment.",
    ),
    "PS907": (
        "the program needs a GPU that is not there",
        "It asked for an accelerator that this machine, or this build of torch, does not have. Run the "
        "doctor where the GPU is, or let the program fall back to the CPU: "
        "`device = 'cuda' if torch.cuda.is_available() else 'cpu'`.",
    ),
    "PS908": (
        "a file or folder is missing",
        "The program could not open a file before it used a loader. It runs in the folder from which the "
        "doctor was called, like with `python train.py`. Check the path, or change into the right folder.",
    ),
    "PS909": (
        "the program did not reach a loader in time",
        "When its time was up the program was still busy, or waiting, before its first batch. The message "
        "gives the line where it was. Raise `--timeout`, give it less to prepare, or name a function that "
        "returns the loader: `penstock doctor package.module:make_loader`.",
    ),
    "PS910": (
        "the program prints without end",
        "More output came than an examined program may write, before it used a loader. Silence it, or name a "
        "function that returns the loader.",
    ),
    "PS911": (
        "the program ended abruptly before it used a loader",
        "It called `os._exit`, or left with a status that is not zero and without an exception, or a signal "
        "ended it. The message gives the status. Run it by itself, and repair that first.",
    ),
    "PS912": (
        "the program cannot be parsed",
        "Python refuses the source. The message gives the line. Repair it, then examine again.",
    ),
    "PS913": (
        "memory ran out in the program itself",
        "The program, and no worker of a loader, took more memory than it may have here. Give it less to "
        "load, or examine it on a machine with more.",
    ),
    "PS914": (
        "the program starts processes without end",
        "More processes came than an examined program may have, before it used a loader.",
    ),
    "PS915": (
        "torch is not installed here",
        "The Python that runs the doctor has no torch. Install penstock into your project's environment, "
        "or run the doctor with its Python: `python -m penstock doctor …`.",
    ),
    "PS916": (
        "an environment variable is missing",
        "The program reads a variable that is not set. Set it for the doctor too: "
        "`NAME=value penstock doctor train.py`.",
    ),
    "PS917": (
        "the program could not reach the network",
        "A download or a connection failed before a loader was used. Fetch the data beforehand, or examine "
        "the program where the network is.",
    ),
    "PS918": (
        "the program wants to be started by a launcher",
        "It asks for RANK, WORLD_SIZE and the like, which `torchrun` sets. Set them for one rank: "
        "`RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500` before `penstock`.",
    ),
    "PS919": (
        "the program fails in its own code, not in a loader",
        "Its loaders gave what they were asked for; then the program's own code failed. The message gives "
        "the exception and the line. Repair that first: what would have come after it was not examined.",
    ),
    "PS920": (
        "the doctor could not run the program",
        "The child process could not be started or watched. The message says what the system answered.",
    ),
    "PS921": (
        "the loader cannot be shipped to a fresh process",
        "`penstock.diagnose(loader)` examines a copy of the loader in processes of its own. Something in the "
        "dataset, collate function or sampler cannot be copied: an open file, a lock, a connection. Open it "
        "lazily, in the worker; or save the code as a script, and run `penstock doctor` on that.",
    ),
    "PS922": (
        "the program fails in a loader, and the cause was not found",
        "What was seen is in the report: the ladder, the exception or the stacks. None of the causes that "
        "the doctor knows explains it. `penstock run` may still carry the program through.",
    ),
    "PS999": (
        "the doctor itself failed",
        "A mistake of penstock's: it says nothing about the program. The report names the exception. "
        "`penstock lint` and `penstock run` may still help.",
    ),
}

# Longer than any pause between epochs that was seen.
_STILL_S = 10.0

_GPU = re.compile(
    r"NVIDIA driver|no CUDA|CUDA GPUs|not compiled with CUDA|CUDA-capable|on a CUDA device|CUDA driver"
    r"|no (?:gpu|accelerator)|gpu (?:is )?(?:required|not (?:found|available))"
    r"|(?:requires?|needs?) (?:a |an )?(?:cuda|gpu)"
    r"|cuda (?:is )?(?:required|not available|unavailable)|torch\.cuda\.is_available\(\)",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(
    r"^usage: |the following arguments are required|Missing (?:argument|option|parameter)|^Usage: ",
    re.MULTILINE,
)
_INPUT = re.compile(r"EOF when reading a line|Inappropriate ioctl for device")
_LAUNCHER = re.compile(
    r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected"
)
_VARIABLE = re.compile(r"os\.environ\[|os\.getenv|raise KeyError\(key\) from None")
_NETWORK = re.compile(
    r"URLError|ConnectionError|Max retries exceeded|Name or service not known|getaddrinfo"
    r"|Temporary failure in name resolution|Network is unreachable|MaxRetryError"
    r"|LocalEntryNotFoundError|OfflineMode"
)
_LAST_LINE = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))(?:: (?P<text>.*))?$"
)
_FILE_LINE = re.compile(r'File "(?P<file>[^"<]+)", line (?P<line>\d+)')
_NOT_THEIRS = ("/site-packages/", "/lib/python", "/penstock/_lab/", "<frozen")


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that ended the program."""

    type: str
    text: str
    traceback: str
    site: Site | None


class Refusal(Protocol):
    """A target that was refused before anything was started: see `_lab.target.TargetError`."""

    kind: str
    what: str
    why: str
    fix: str


def refused(refusal: Refusal) -> Reason:
    """For a target that cannot be resolved."""
    code = "PS912" if refusal.kind == "not-python" else "PS901"
    return Reason(code, refusal.what, refusal.why, refusal.fix or _fix(code))


def not_shipped(what: str, why: str) -> Reason:
    """For a loader at hand that cannot go to a fresh process."""
    return Reason("PS921", what, why, _fix("PS921"))


def not_run(why: str) -> Reason:
    """For a child that could not be started or watched."""
    return Reason("PS920", "the program could not be run", why, "report this with the message above")


def could_not_run(trial: Trial, *, used: bool | None = None) -> Reason | None:
    """Why the program took no batch from any loader; None when it did, or when its loader is the failure."""
    was_used = bool(trial.iterators) if used is None else used
    if was_used or _in_a_loader(trial):
        return None
    for ask in _LIMITS:
        reason = ask(trial)
        if reason is not None:
            return reason
    return _raised_reason(trial) or _silent_end(trial)


def failed_elsewhere(trial: Trial) -> Reason | None:
    """Why the program stopped after its loaders had been used, in its own code; None when it did not."""
    if trial.ended_by in {"output", "processes", "memory"}:
        return _too_much(trial)
    if trial.outcome == "ok":
        return None
    raised = raised_by(trial)
    if _in_a_loader(trial) or trial.outcome in {"hang", "oom", "crash"}:
        return _unexplained(trial, raised)
    if raised is None:
        what = f"the program ended with status {trial.status}, in its own code and not in a loader"
        return Reason("PS919", what, _last_lines(trial.stderr or trial.stdout), _fix("PS919"))
    what = f"the program raised {_said(raised)}{_at(raised.site)}, in its own code and not in a loader"
    return Reason("PS919", what, _last_lines(raised.traceback or trial.stderr), _fix("PS919"))


def stood_still(trial: Trial) -> str | None:
    """What to say of a program that loads well and then waits for something of its own, without an end."""
    if trial.outcome != "ok" or trial.ended_by != "time" or trial.still_s < _STILL_S:
        return None
    where = _where_it_was(trial.looks)
    return (
        f"nothing in the program had moved for {trial.still_s:.0f} s when its time was up, and it was not a "
        f"loader that it waited for{f': {where}' if where else ''}"
    )


def _unexplained(trial: Trial, raised: Raised | None) -> Reason:
    """For an illness that no rule knows: it is not called health."""
    said = (
        "hung"
        if trial.outcome == "hang"
        else f"raised {_said(raised)}"
        if raised
        else f"ended: {trial.outcome}"
    )
    what = f"the program {said} while it used a loader, and the cause was not found"
    return Reason("PS922", what, _where_it_was(trial.looks) or _last_lines(trial.stderr), _fix("PS922"))


def _in_a_loader(trial: Trial) -> bool:
    """Whether something of a loader failed: its length, its start, a worker."""
    ours = any(failure.phase not in {"program", ""} for failure in trial.failures)
    return ours or any(death.loader is not None for death in trial.deaths)


def raised_by(trial: Trial) -> Raised | None:
    """The exception that ended the program: as the observer saw it, else as stderr tells it."""
    fatal = [failure for failure in trial.failures if failure.is_fatal]
    if fatal:
        return _from_failure(fatal[-1])
    if trial.status in {0, None}:
        return None
    return _from_stderr(trial.stderr)


def _from_failure(failure: Failure) -> Raised:
    site = failure.site or _innermost(failure.traceback)
    return Raised(failure.type.rpartition(".")[2], failure.text, failure.traceback, site)


def _from_stderr(text: str) -> Raised | None:
    if "Traceback (most recent call last)" not in text and "SyntaxError" not in text:
        return None
    for line in reversed(text.splitlines()):
        match = _LAST_LINE.match(line.strip())
        if match:
            name = match["type"].rpartition(".")[2]
            return Raised(name, match["text"] or "", text, _innermost(text))
    return None


def _innermost(traceback: str) -> Site | None:
    """The last line of the user's own that a traceback names."""
    found = [(match["file"], int(match["line"])) for match in _FILE_LINE.finditer(traceback)]
    own = [each for each in found if not any(part in each[0] for part in _NOT_THEIRS)]
    return Site(own[-1][0], own[-1][1]) if own else None


def _said(raised: Raised) -> str:
    text = raised.text.strip().splitlines()
    return f"{raised.type}: {text[0]}" if text else raised.type


def _at(site: Site | None) -> str:
    return "" if site is None else f" at {site.file}:{site.line}"


def _fix(code: str) -> str:
    """The last sentence of a page: how to go on."""
    return _HOW_TO_GO_ON[code]


_HOW_TO_GO_ON = {
    "PS901": "give the path of a script, the dotted name of a module, or module:callable",
    "PS902": "pass the arguments with which it trains after --, or name a function that returns the loader: "
    "penstock doctor module:make_loader",
    "PS903": "repair that line first, then examine again",
    "PS904": "install it into the Python that runs the doctor",
    "PS905": "pass arguments after --: penstock doctor train.py -- --data ./data",
    "PS906": "pass what it asks for as an argument or in the environment; an examined program has no input",
    "PS907": "run the doctor where the GPU is, or let the program fall back to the CPU",
    "PS908": "check the path; the program runs in the folder from which the doctor was called",
    "PS909": "raise --timeout, give it less to prepare, or name a function that returns the loader: "
    "penstock doctor module:make_loader",
    "PS910": "silence the program, or name a function that returns the loader",
    "PS911": "run the program by itself, and repair that first",
    "PS912": "repair that line",
    "PS913": "give it less to load, or examine it on a machine with more memory",
    "PS914": "see why it starts processes before it trains; is a `if __name__ == '__main__':` missing?",
    "PS915": "install penstock into the environment of your project: python -m pip install penstock",
    "PS916": "set the variable for the doctor too: NAME=value penstock doctor train.py",
    "PS917": "fetch the data beforehand, or examine the program where the network is",
    "PS918": "set them for one rank: RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 "
    "MASTER_PORT=29500 penstock doctor train.py",
    "PS919": "repair that line first, then examine again",
    "PS922": "see the ladder and the stacks in the report; `penstock run` may carry the program through",
    "PS921": "open it lazily, in the worker; or save the code as a script and run `penstock doctor` on that",
}


# What ended the program from outside.


def _too_much(trial: Trial) -> Reason | None:
    seconds = f"ended after {trial.seconds:.0f} s"
    if trial.ended_by == "output":
        what = "the program prints without end"
        last = _last_lines(trial.stdout, 1)[-60:]
        return Reason("PS910", what, f"{seconds}; last: {last!r}", _fix("PS910"))
    if trial.ended_by == "processes":
        return Reason("PS914", "the program starts processes without end", seconds, _fix("PS914"))
    if trial.ended_by == "memory" or trial.outcome == "oom":
        when = "in the program itself, not in a worker" if trial.iterators else "before a loader was used"
        return Reason("PS913", f"memory ran out {when}", seconds, _fix("PS913"))
    return None


def _too_long(trial: Trial) -> Reason | None:
    if trial.ended_by not in {"time", "stall"}:
        return None
    asks = _reads_input(trial.looks)
    if asks is not None:
        return Reason("PS906", f"the program waits for input{asks}", "", _fix("PS906"))
    busy = "waiting" if trial.ended_by == "stall" or trial.outcome == "hang" else "busy"
    what = f"after {trial.seconds:.0f} s the program was still {busy} and had not reached a loader"
    return Reason("PS909", what, _where_it_was(trial.looks), _fix("PS909"))


def _where_it_was(looks: tuple[ProcessLook, ...]) -> str:
    for look in looks:
        frame = _own_frame(look)
        if frame is not None:
            return f"it was at {frame.file}:{frame.line} in {frame.function}"
    return ""


def _own_frame(look: ProcessLook) -> Frame | None:
    frames = look.main.frames if look.main else ()
    for frame in frames:
        if not any(part in frame.file for part in _NOT_THEIRS):
            return frame
    return None


def _reads_input(looks: tuple[ProcessLook, ...]) -> str | None:
    for look in looks:
        frames = look.main.frames if look.main else ()
        if frames and frames[0].function in {"input", "getpass", "unix_getpass", "_raw_input"}:
            frame = _own_frame(look)
            return f" at {frame.file}:{frame.line}" if frame else ""
    return None


_LIMITS: tuple[Callable[[Trial], Reason | None], ...] = (_too_much, _too_long)


# What the program said when it ended by itself.


def _raised_reason(trial: Trial) -> Reason | None:
    wants = _wants_arguments(trial)
    if wants is not None:
        return wants
    raised = raised_by(trial)
    if raised is None:
        return _told_on_stderr(trial)
    for ask in _KINDS:
        reason = ask(raised)
        if reason is not None:
            return reason
    what = f"the program raised {_said(raised)}{_at(raised.site)}, before it used a loader"
    return Reason("PS903", what, _last_lines(raised.traceback), _fix("PS903"))


def _wants_arguments(trial: Trial) -> Reason | None:
    if trial.status in {0, None} or not _ARGUMENTS.search(trial.stderr):
        return None
    return Reason("PS905", "the program wants arguments", _last_lines(trial.stderr, 2), _fix("PS905"))


def _told_on_stderr(trial: Trial) -> Reason | None:
    """A program that complains and leaves: `sys.exit("CUDA is required")`."""
    if trial.status in {0, None} or not _GPU.search(trial.stderr):
        return None
    what = "the program needs a GPU that is not there"
    return Reason("PS907", what, _last_lines(trial.stderr, 1), _fix("PS907"))


def _missing_module(raised: Raised) -> Reason | None:
    if raised.type not in {"ModuleNotFoundError", "ImportError"}:
        return None
    named = re.search(r"No module named '([^']+)'", raised.text)
    name = named[1] if named else ""
    if name.partition(".")[0] == "torch":
        return Reason("PS915", "torch is not installed here", _said(raised), _fix("PS915"))
    what = f"the module {name!r} is missing" if name else f"an import fails: {raised.text}"
    return Reason("PS904", what, f"imported{_at(raised.site)}", _fix("PS904"))


def _argument_by_index(raised: Raised) -> Reason | None:
    if raised.type not in {"IndexError", "ValueError"} or "sys.argv" not in raised.traceback:
        return None
    return Reason(
        "PS905", "the program wants arguments", f"it reads sys.argv{_at(raised.site)}", _fix("PS905")
    )


def _asks(raised: Raised) -> Reason | None:
    if raised.type != "EOFError" and not _INPUT.search(raised.text):
        return None
    return Reason("PS906", f"the program asks for input{_at(raised.site)}", _said(raised), _fix("PS906"))


def _gpu(raised: Raised) -> Reason | None:
    if not _GPU.search(raised.text) and not (
        raised.type == "AssertionError" and "cuda" in raised.traceback[-400:]
    ):
        return None
    what = f"the program needs a GPU that is not there{_at(raised.site)}"
    return Reason("PS907", what, _said(raised), _fix("PS907"))


def _launcher(raised: Raised) -> Reason | None:
    is_variable = raised.type == "KeyError" and raised.text.strip("'\" ") in {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
    }
    if not is_variable and not _LAUNCHER.search(raised.text):
        return None
    return Reason("PS918", "the program wants to be started by a launcher", _said(raised), _fix("PS918"))


def _variable(raised: Raised) -> Reason | None:
    if raised.type != "KeyError" or not _VARIABLE.search(raised.traceback) or "os.py" not in raised.traceback:
        return None
    what = f"the environment variable {raised.text} is not set{_at(raised.site)}"
    return Reason("PS916", what, _said(raised), _fix("PS916"))


def _missing_file(raised: Raised) -> Reason | None:
    if raised.type not in {"FileNotFoundError", "NotADirectoryError", "PermissionError", "IsADirectoryError"}:
        return None
    named = re.search(r": '([^']+)'", raised.text)
    what = f"a file or folder is missing: {named[1]}" if named else "a file or folder is missing"
    return Reason("PS908", what, f"{_said(raised)}{_at(raised.site)}", _fix("PS908"))


def _network(raised: Raised) -> Reason | None:
    if not _NETWORK.search(raised.type + " " + raised.text):
        return None
    return Reason("PS917", "the program could not reach the network", _said(raised), _fix("PS917"))


def _syntax(raised: Raised) -> Reason | None:
    if raised.type not in {"SyntaxError", "IndentationError", "TabError"}:
        return None
    return Reason("PS912", f"the program cannot be parsed{_at(raised.site)}", _said(raised), _fix("PS912"))


def _memory(raised: Raised) -> Reason | None:
    if raised.type != "MemoryError" and "can't allocate memory" not in raised.text:
        return None
    what = f"memory ran out before a loader was used{_at(raised.site)}"
    return Reason("PS913", what, _said(raised), _fix("PS913"))


_KINDS: tuple[Callable[[Raised], Reason | None], ...] = (
    _syntax,
    _missing_module,
    _argument_by_index,
    _asks,
    _launcher,
    _variable,
    _gpu,
    _network,
    _missing_file,
    _memory,
)


def _silent_end(trial: Trial) -> Reason:
    if trial.status is not None and trial.status < 0:
        what = f"the program was ended by {_signal(-trial.status)} before it used a loader"
        return Reason("PS911", what, _last_lines(trial.stderr), _fix("PS911"))
    if trial.is_abrupt:
        what = (
            f"the program left by `os._exit` or the like, with status {trial.status}, before it used a loader"
        )
        return Reason("PS911", what, _last_lines(trial.stderr or trial.stdout), _fix("PS911"))
    if trial.status not in {0, None}:
        what = f"the program ended with status {trial.status}, before it used a loader"
        return Reason("PS911", what, _last_lines(trial.stderr or trial.stdout), _fix("PS911"))
    made = len(trial.loaders)
    why = (
        f"{made} loader{'s were' if made > 1 else ' was'} made, and never iterated"
        if made
        else "none was made"
    )
    return Reason("PS902", "the program ended before it used a loader", why, _fix("PS902"))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:])[-400:]
